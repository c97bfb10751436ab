"""Secure sums as requests: who is asked, who is missed."""

from dataclasses import replace

import pytest
import torch
from by_bytes import CLASSES, DIM, Federation, make_client_data
from carrier import SIZES, Carrier, garbage, late, lost, twice
from exchange_plugin import NAMED, SILENT, write_plugin
from messages_of_sums import KEYS, ROSTER, SESSION
from private_words import OTHERS, SUMS
from spoilt_messages import DIM as MESSAGE_DIM
from spoilt_messages import SCHEMA, opened, pack, refusal

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.extras.secure_sums import exchange
from federatedscope_ggeur.extras.secure_sums.messages import (
    MaskedRequest,
    MaskedVector,
    SumKey,
    SumKeysRequest,
)
from federatedscope_ggeur.extras.secure_sums.settings import STAGES, SumSettings
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges import Absence
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.wire.schema import Declared

SETTINGS = SumSettings(
    num_classes=CLASSES,
    dim=DIM,
    min_samples=3,
    store="",
    radius=20.0,
    max_rows=2**14,
    fraction_bits=36,
    class_names=tuple(map(str, range(CLASSES))),
)
ALL = [1, 2, 3, 4]


@pytest.fixture
def carried():
    """Four clients whose statistics are summed, two of them asked clients."""
    return summing_carrier()


def summing_carrier(window=2, quorum=None):
    federation = Federation(
        make_client_data(SIZES),
        steps=(1,),
        prototypes="others",
        own=[SETTINGS],
        facts={"only_totals": True, "chosen": {"secure_sums": "statistics"}},
    )
    return Carrier(federation, quorum, window)


def sums_of(one):
    return one.coordinator.find(exchange.SumsExchange)


def gathered(one):
    one.carry(sums_of(one).begin())
    return sums_of(one).record()["statistics_bytes_up"]


def test_keys_then_one_stage_after_the_other_of_everyone(carried):
    sizes = gathered(carried)
    names = ["sum_counts", "sum_means", "sum_pooled"]
    stages = [(name, some) for name in names for some in ([1, 2], [3, 4])]
    assert carried.asked() == [("sum_keys", ALL), *stages]
    kinds = ["sum_keys", *names]
    assert sum(sizes.values()) == carried.bytes_up(*kinds)
    assert int(carried.server.merged.statistics.counts.sum()) == sum(SIZES)


def test_keys_and_stages_alone_are_patient():
    own = exchange.SumsExchange.KINDS
    patient = {kind for kind in all_kinds() if kind.patient and kind in own}
    assert patient == {exchange.SUM_KEYS, *exchange.SUM_KINDS.values()}


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *(("sum_keys", fault) for fault in (lost, late, garbage, twice)),
        *((f"sum_{stage}", lost) for stage in STAGES),
    ],
)
def test_whoever_is_missing_ends_it_by_name_whatever_the_quorum(fault, kind):
    one = summing_carrier(quorum=2)
    one.faults[kind, 0, 3] = fault
    with pytest.raises(GGEURError, match=f"round 0, {kind}: .* client 3: "):
        gathered(one)
    assert sums_of(one).summed is None


@pytest.mark.parametrize("kind", ["sum_keys", "sum_means"])
def test_who_was_not_waited_for_is_neither_blamed_nor_asked_again(kind):
    one = summing_carrier(window=4)
    requests = sums_of(one).begin()
    request = next(requests)
    while request.kind.name != kind:
        replies = {
            k: one.handlers[k].answer(request.kind, parts)
            for k, parts in request.parts.items()
        }
        request = requests.send(replies)
    one.membership.lose(3, "other rows")
    with pytest.raises(GGEURError, match=r"1 of 4 are missing. client 3: other rows\."):
        requests.send({3: Absence("other rows")})
    assert list(one.membership.absent) == [3]


def test_who_is_not_there_at_the_beginning_is_not_in_the_roster():
    one = summing_carrier(quorum=3)
    one.membership.leave(2, "gone")
    gathered(one)
    assert list(one.server.merged.rows) == [1, 3, 4]
    assert int(one.server.merged.statistics.counts.sum()) == sum(SIZES) - SIZES[1]


def test_more_rows_than_clients_declared_are_noticed(carried):
    carried.membership.declared.update({k: Declared(train=5) for k in ALL})
    with pytest.raises(GGEURError, match="declared 20 together"):
        gathered(carried)


@pytest.mark.parametrize("field", ["stage", "session", "masked"])
def test_an_answer_of_another_stage_session_or_length_is_refused(carried, field):
    def spoil(reply, carrier):
        schema = carrier.server.schema
        vector = MaskedVector.from_bytes(reply[0], schema, "client 3")
        wrong = {"stage": "counts", "session": bytes(16), "masked": vector.masked[1:]}
        return (replace(vector, **{field: wrong[field]}).to_bytes(),)

    carried.faults["sum_means", 0, 3] = spoil
    with pytest.raises(GGEURError, match=f"client 3: .*field '{field}'"):
        gathered(carried)


# What is refused of messages of secure sums, beside what is refused of all.


PEERS = (ROSTER, KEYS, KEYS[::-1], (b"", b"3" * 64, b""))
#: Stages in which a request has no classes; the last one has an origin.
REQUESTS = {
    "counts": MaskedRequest(SESSION, "counts", *PEERS),
    "pooled": MaskedRequest(
        SESSION, "pooled", *PEERS, origin=torch.arange(MESSAGE_DIM) / 2
    ),
}


@pytest.mark.parametrize(
    "sent", [*REQUESTS.values(), SumKey(3, SESSION, KEYS[0], KEYS[1])]
)
def test_stages_and_keys_without_a_signature_come_back(sent):
    data = sent.to_bytes()
    assert type(sent).from_bytes(data, SCHEMA, "client 3").to_bytes() == data


@pytest.mark.parametrize(
    ("payload", "name", "wrong"),
    [
        *(
            (SumKeysRequest, "roster", torch.tensor(roster))
            for roster in ([3, 1, 7], [1, 1, 7], [0, 1, 7], [*range(1, 10002)])
        ),
        *((MaskedRequest, "classes", torch.tensor(c)) for c in ([2, 0], [0, 3])),
        *((MaskedRequest, "counts", torch.tensor(n)) for n in ([5], [5, 0])),
        (MaskedRequest, "origin", torch.zeros(MESSAGE_DIM)),
        (SumKey, "signature", torch.zeros(63, dtype=torch.uint8)),
        (MaskedVector, "masked", torch.zeros(3, 1, dtype=torch.int64)),
        (SumKeysRequest, "min_clients", 0),
        (MaskedRequest, "stage", "other"),
    ],
)
def test_what_cannot_be_is_refused_by_name(payload, name, wrong):
    is_tensor = isinstance(wrong, torch.Tensor)
    numbers, tensors = (None, {name: wrong}) if is_tensor else ({name: wrong}, None)
    assert refusal(payload, pack(payload, numbers, tensors)).field == name


@pytest.mark.parametrize(
    ("stage", "name", "wrong"),
    [
        ("counts", "classes", torch.tensor([0])),
        ("pooled", "origin", torch.full((MESSAGE_DIM,), torch.nan)),
        ("pooled", "origin", torch.zeros(MESSAGE_DIM + 1)),
    ],
)
def test_what_does_not_belong_to_a_stage_is_refused_by_name(stage, name, wrong):
    kind, numbers, tensors = opened(REQUESTS[stage])
    data = wire.pack(kind, numbers, {**tensors, name: wrong})
    assert refusal(MaskedRequest, data).field == name


# An exchange of a plugin beside secure sums.


OWN = [*SUMS, *OTHERS]


def checked(folder, quickstart, **more):
    path = write_plugin(folder, quickstart, **more)
    return load_config(path, list(map(str, [*NAMED, *OWN])))


@pytest.mark.usefixtures("forget_exchange")
def test_secure_sums_refuse_one_that_does_not_say_what_it_reveals(quickstart, tmp_path):
    with pytest.raises(ConfigError, match=r"the exchange classes_held of .*REVEALS"):
        checked(tmp_path, quickstart, module=SILENT)


@pytest.mark.usefixtures("forget_exchange")
def test_under_secure_sums_what_it_reveals_is_a_warning(quickstart, tmp_path):
    privacy = privacy_of(checked(tmp_path, quickstart))
    said = "the exchange classes_held of a plugin escapes the masks: how many classes"
    assert any(said in warning for warning in privacy.warnings)
