"""What is no message, or one of another kind or version, is refused by sender."""

import contextlib
import hashlib
import json
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save as save_arrays
from safetensors.torch import save
from spoilt_messages import PAYLOADS, SCHEMA, VALID, pack, raw, refusal, with_tensor

from federatedscope_ggeur.cfg_ggeur.keys import extra_keys
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate

GOLDEN = {
    "StatisticsUpload": "51b0e933caa62b17",
    "TotalsUpload": "2d79bcb495c72913",
    "SpaceBroadcast": "4ff693347cb13002",
    "Geometry": "ffd9b12ec92e1c1d",
    "Prototypes": "b073f3a5046d7725",
    "PrepareReply": "4bec059e3b4f3ab2",
    "InitBroadcast": "20b23fc0c0bc36c8",
    "HeldOut": "5b0a29e738a90033",
    "Broadcast": "01f2fadfb2ee4fb3",
    "ClientUpdate": "244ad048f1ace534",
    "ScoreReport": "40088628ca78743e",
    "LeaveOneOut": "42c0787bb93f213b",
    "HitCounts": "f89fca03419f1bc7",
    "LossQuery": "07768d5ab46fbd3c",
    "LogLosses": "a33491804f9abe18",
    "OneCandidate": "9d19fbbced5eece8",
    "Confidences": "81929e99365e6bac",
    "PersonalQuery": "d39ce51645fdf82d",
    "PersonalLosses": "557dc06a08b699b5",
    "PersonalScore": "2eac35fcdd9b5f5a",
    "ReleaseRequest": "2342495ac9a5e367",
    "ReleaseVector": "c486554b43598a38",
    "SumKeysRequest": "82cb64f4c22ee22e",
    "MaskedRequest": "5406b9313b62cddf",
    "SumKey": "1554342a1e7d1391",
    "MaskedVector": "2e751aa0bab23d2c",
    "Join": "8194f1e3bdf34c47",
    "Ending": "6e0bc5d0aac32a31",
    "BookUpload": "597b0297e0d16645",
    "BookReceipt": "ca785ffe1f58814a",
}
#: Of the names of the core's settings that all sides have alike where no key is set.
SETTINGS = "dbb31f6ab32f6648"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_message_comes_back_whole_and_its_bytes_stay_what_they_were(payload):
    """The digests are of the commit before secure sums were added. Those of totals were
    made when they got squares by dimension, that of rows held out with these, and the
    last four by this test."""
    sent = payload.from_bytes(pack(payload), SCHEMA, "client 3").to_bytes()
    kind, numbers, tensors = VALID[payload]
    held = wire.unpack(sent, kind, "client 3")
    assert numbers.items() <= held._numbers.items()
    assert tensors.keys() <= held._tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(held._tensors[name], tensor)
        assert held._tensors[name].dtype == tensor.dtype
    assert payload.from_bytes(sent, SCHEMA, "client 3").to_bytes() == sent
    assert hashlib.sha256(sent).hexdigest()[:16] == GOLDEN[payload.__name__]


def test_so_do_the_names_of_settings(config):
    added = {f"ggeur.{key.name}" for key in extra_keys()}
    names = "\n".join(sorted(agreed_settings(config()).keys() - added))
    assert hashlib.sha256(names.encode()).hexdigest()[:16] == SETTINGS


TENSORS = st.tuples(
    st.sampled_from([torch.int64, torch.float64, torch.float32, torch.uint8]),
    st.lists(st.integers(0, 3), max_size=3),
).map(lambda made: torch.arange(math.prod(made[1])).reshape(made[1]).to(made[0]))


@given(
    st.dictionaries(st.text(min_size=1), TENSORS, max_size=5),
    st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_a_message_has_the_bytes_that_safetensors_would_make(tensors, numbers):
    data = wire.pack("kind", numbers, tensors)
    length = int.from_bytes(data[:8], "little")
    text = json.loads(data[8 : 8 + length])["__metadata__"]
    assert json.loads(text["ggeur"])["numbers"] == numbers
    assert data == save_arrays({name: t.numpy() for name, t in tensors.items()}, text)
    assert wire.packed_size("kind", numbers, tensors) == len(data)


@given(*(st.integers(1, 2**40) for _ in range(3)), TENSORS)
def test_the_size_of_an_update_is_that_of_its_bytes(client, number, steps, tensor):
    update = ClientUpdate(client, number, torch.zeros(5), steps, {"own": tensor})
    assert update.packed_size == len(update.to_bytes())


NOT_MESSAGES = {
    "empty": b"",
    "huge header length": b"\xff" * 100,
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "pickle": pickle.dumps({"client": 3, "params": [0.0] * 10}),
    "no metadata": save({"params": torch.ones(2)}),
    "null": raw(b"null"),
    "null metadata": raw(b'{"__metadata__":null}'),
    "not text": raw(b'{"__metadata__":{"ggeur":"\xff\xfe"}}'),
    "not json": save({}, {"ggeur": "version 1"}),
    "json number": save({}, {"ggeur": "1"}),
    "no kind": save({}, {"ggeur": '{"version": 2, "numbers": {}}'}),
    "numbers no dict": save(
        {}, {"ggeur": '{"version": 2, "kind": "prepare_reply", "numbers": 5}'}
    ),
    "deep list": save({}, {"ggeur": "[" * 100_000}),
    "unknown dtype": with_tensor("X9", [2], 2),
    "four-bit dtype": with_tensor("F4", [4], 2),
    "shape beyond int64": with_tensor("F32", [2**63, 0], 0),
    "shape promises more": with_tensor("F32", [2**30], 4),
}


@pytest.mark.parametrize("data", NOT_MESSAGES.values(), ids=NOT_MESSAGES)
def test_what_is_no_message_is_refused(data):
    assert refusal(PrepareReply, data).field == "header"


def test_another_kind_or_version_is_refused():
    for kind in ("diary", ["a"]):
        assert refusal(ClientUpdate, pack(ClientUpdate, kind=kind)).field == "kind"
    for version in (0, 2, 5, "3", True, 10**300, None):
        data = pack(ClientUpdate, version=version)
        assert refusal(ClientUpdate, data).field == "version"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_message_cut_anywhere_or_with_more_behind_it_is_refused(payload):
    data = pack(payload)
    for length in range(0, len(data), 7):
        assert refusal(payload, data[:length]).field == "header"
    assert refusal(payload, data + b"\0\0\0\0").field == "header"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_flipped_byte_never_leads_to_another_error(payload):
    data = pack(payload)
    for position in range(0, len(data), 3):
        spoilt = bytearray(data)
        spoilt[position] ^= 0xFF
        with contextlib.suppress(MessageError):
            payload.from_bytes(bytes(spoilt), SCHEMA, "client 3")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_may_be_as_large_as_the_limit_and_no_larger(sign):
    data = wire.pack("kind", {}, {"x": torch.tensor([0.0, 8.0 * sign])})
    message = wire.unpack(data, "kind", "client 3")
    found = message.tensor("x", torch.float32, (2,), within=(-8.0, 8.0))
    assert found[1] == 8 * sign
    said = f"must lie in -7..7, got {8 * sign}$"
    with pytest.raises(MessageError, match=said) as error:
        message.tensor("x", torch.float32, (2,), within=(-7.0, 7.0))
    assert error.value.field == "x"
