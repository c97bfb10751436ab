"""A field that does not hold what it should is refused by sender and field."""

from types import SimpleNamespace

import pytest
import torch
from spoilt_messages import DIM, PARAMS, PAYLOADS, SCHEMA, VALID, pack, refusal

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges import Request, personal
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    HeldOut,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.closed_form import messages
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.space import SpaceBroadcast, TotalsUpload
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.methods import FedAvg, TensorSpec
from federatedscope_ggeur.models import ModelSettings, build_model

NAN, INF = float("nan"), float("inf")
TENSORS = [
    (payload, name) for payload in PAYLOADS for name in sorted(VALID[payload][2])
]
OWN = ("init_upload.a", "init_broadcast.a", "download.c", "upload.c")
#: May be missing, or of any length; test_leave_one_out.py has what they may not.
OWN += ("scatter", "hits")
#: Of any length here; test_noisy_runs.py has what the server refuses.
OWN += ("values",)
#: Empty here; test_secure_sums_exchange.py has more.
OWN += ("origin", "masked")
FIXED = [(p, name) for p, name in TENSORS if name not in OWN]


@pytest.mark.parametrize(("payload", "name"), FIXED)
def test_a_missing_tensor_is_refused(payload, name):
    assert refusal(payload, pack(payload, tensors={name: None})).field == name


@pytest.mark.parametrize(("payload", "name"), TENSORS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64, torch.bool])
def test_another_dtype_is_refused(payload, name, dtype):
    spoilt = {name: VALID[payload][2][name].to(dtype)}
    assert refusal(payload, pack(payload, tensors=spoilt)).field == name


@pytest.mark.parametrize(("payload", "name"), FIXED)
def test_another_shape_is_refused(payload, name):
    tensor = VALID[payload][2][name]
    narrower = [tensor[..., 1:].clone()] * (tensor.ndim > 1)
    for spoilt in (tensor[None], tensor.sum(), torch.cat([tensor, tensor]), *narrower):
        data = pack(payload, tensors={name: spoilt})
        # A longer list of classes shows as a shorter list of something else.
        expected = {name} | ({"counts", "ranks", "prototypes"} & set(VALID[payload][2]))
        assert refusal(payload, data).field in expected


FLOATS = [
    (payload, name)
    for payload, name in TENSORS
    if VALID[payload][2][name].is_floating_point() and VALID[payload][2][name].numel()
]


@pytest.mark.parametrize(("payload", "name"), FLOATS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_number_that_is_none_is_refused(payload, name, value):
    spoilt = VALID[payload][2][name].clone()
    spoilt.flatten()[-1] = value
    error = refusal(payload, pack(payload, tensors={name: spoilt}))
    assert error.field == name
    assert "NaN or infinity" in str(error)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_tensor_that_belongs_to_nothing_is_refused(payload):
    data = pack(payload, None, {"junk": torch.ones(9)})
    assert refusal(payload, data).field == "junk"


NUMBERS = [(payload, name) for payload in PAYLOADS for name in VALID[payload][1]]


@pytest.mark.parametrize(("payload", "name"), NUMBERS)
def test_a_wrong_number_is_refused(payload, name):
    other = 5 if name in ("domain", "encoder", "kind", "stage", "text") else "5"
    wrong = [None, -1, NAN, INF, -INF, True, [1], {"a": 5}, 10**400, other]
    wrong += [1.5] * isinstance(VALID[payload][1][name], int)
    wrong += [4] * (name == "client")  # another client
    for value in wrong:
        assert refusal(payload, pack(payload, numbers={name: value})).field == name


def along(length):
    """Eigenvectors, one of them of this length."""
    vectors = torch.eye(DIM)[:3]
    vectors[1] *= length
    return vectors


#: Numbers and tensors that no honest side sends, and the field that is named.
SPOILT = [
    *((ClientUpdate, {name: 0}, {}, name) for name in ("client", "round")),
    (ClientUpdate, {}, {"params": torch.full((PARAMS,), 1.1e30)}, "params"),
    (Join, {"class_names": []}, {}, "class_names"),
    (Join, {"dim": 0}, {}, "dim"),
    (Join, {"text": 5}, {}, "text"),
    (personal.PersonalQuery, {"kappa": 10}, {}, "kappa"),
    (personal.PersonalQuery, {"temperature": 0}, {}, "shrinkage"),
    (personal.PersonalScore, {"correct": 6}, {}, "correct"),
    (messages.OneCandidate, {"temperature": 0}, {}, "temperature"),
    (HeldOut, {"share": 0.2}, {}, "share"),
    (messages.LogLosses, {"rows": 0}, {}, "losses"),
    (ScoreReport, {"val_correct": 6}, {}, "val_correct"),
    (ScoreReport, {"splits": ["val", "dev"]}, {}, "splits"),
    (PrepareReply, {"aggregation_weight": 1e308}, {}, "aggregation_weight"),
    (TotalsUpload, {"count": 0}, {}, "mean"),
    (TotalsUpload, {"count": 1}, {}, "spread"),
    (TotalsUpload, {"spread": 1e60}, {}, "spread"),
    # For statistics without scatters alone.
    (TotalsUpload, {"within": 1.0}, {}, "within"),
    (TotalsUpload, {}, {"mean": torch.full((DIM,), 1e16).double()}, "mean"),
    *(
        (TotalsUpload, {}, {name: torch.full((DIM,), value).double()}, name)
        for name in ("squares", "within_squares")
        for value in (-1.0, 1e12, NAN)
    ),
    (SpaceBroadcast, {"kind": "warped"}, {}, "kind"),
    # It could not be left again.
    (SpaceBroadcast, {"scale": 0}, {}, "scale"),
    *(
        (SpaceBroadcast, {}, {"scales": torch.tensor(scales).double()}, "scales")
        for scales in ([1.0, 2.0, 0.0, 1.0], [1.0, 2.0, -3.0, 1.0], [1.0, 2.0])
    ),
    *(
        (StatisticsUpload, {}, {name: torch.tensor(values)}, (*field, name)[0])
        for name, values, *field in (
            ("classes", [-1, 2]),
            ("classes", [0, 3]),
            ("classes", [0, 2**63 - 1]),
            ("classes", [2, 0]),
            ("classes", [2, 2]),
            ("counts", [0, 9]),
            ("counts", [2, -9]),
            ("counts", [2, 2**62]),
            ("counts", [2, 1], "ranks"),  # a triangle of one sample
            ("ranks", [2, -1]),  # above n - 1
            ("ranks", [1, 5]),  # above D
            ("ranks", [1, -2]),
            ("ranks", [2**63 - 1, -1]),
            ("ranks", [1, -(2**63)]),
            ("ranks", [0, -1], "factors"),
            ("ranks", [1, 0], "triangles"),
        )
    ),
    *(
        (Geometry, {}, {name: torch.tensor(values)}, (*field, name)[0])
        for name, values, *field in (
            ("classes", [0, 3]),
            ("classes", [2, 0]),
            ("ranks", [1, 5]),
            ("ranks", [4, -1]),
            ("ranks", [1, 1], "eigenvalues"),
        )
    ),
    *(
        (Geometry, {}, {"eigenvalues": torch.tensor(values).double()}, "eigenvalues")
        for values in ([1.0, 0.0, 1.0], [1.0, 2.0, -1.0])
    ),
    *(
        (Geometry, {}, {"eigenvectors": along(length)}, "eigenvectors")
        for length in (0.0, 0.5, 2.0)
    ),
    (Prototypes, {}, {"labels": torch.tensor([0, 3])}, "labels"),
]


@pytest.mark.parametrize(("payload", "numbers", "tensors", "field"), SPOILT)
def test_what_no_honest_side_sends_is_refused(payload, numbers, tensors, field):
    assert refusal(payload, pack(payload, numbers, tensors)).field == field


@pytest.mark.parametrize(
    "triangle",
    [
        [1.0, 2, 0, 0, 1, 0, 0, 1, 0, 1],  # |covariance| above both variances
        [-1.0, 0, 0, 0, 1, 0, 0, 1, 0, 1],  # a negative variance
        [-1.0, 0, 0, 0, -1, 0, 0, -1, 0, -1],
        [0.0, 1, 0, 0, 0, 0, 0, 0, 0, 0],  # covariance without variance
        [1.0, 0, 0, 0, 1, 0, 0, 1, 0, -0.01],
        [-3e38] * 10,
    ],
)
def test_a_covariance_that_is_none_is_refused(triangle):
    data = pack(StatisticsUpload, tensors={"triangles": torch.tensor([triangle])})
    error = refusal(StatisticsUpload, data)
    assert error.field == "triangles"
    assert "positive semi-definite" in str(error)


@pytest.mark.parametrize("variance", [0.0, 1e-30, 1e-6, 1.0, 1e6, 1e29])
def test_rank_deficient_covariances_of_any_size_are_accepted(variance):
    rows = torch.randn(2, DIM, generator=torch.Generator().manual_seed(0))
    upper = torch.triu_indices(DIM, DIM)
    triangle = variance * (rows.T @ rows)[upper[0], upper[1]][None]
    data = pack(StatisticsUpload, tensors={"triangles": triangle})
    StatisticsUpload.from_bytes(data, SCHEMA, "client 3")


# What the server takes of whom, beyond what decoding and the roles' tests show.


DOMAINS = {1: "art", 2: "photo"}
MODEL = build_model(4, 3, ModelSettings())


class Sends(FedAvg):
    """A method with tensors of every kind of shape, and none."""

    def init_upload_shapes(self, model):
        rows = TensorSpec((None, model.in_features))
        return {"rows": rows, "one": TensorSpec(())}

    def upload_shapes(self, model):
        return {"c": TensorSpec((3,)), "n": TensorSpec((3,), torch.int64)}

    def init_upload_problem(self, init_upload, model):
        return "'one' must be below 9" if init_upload["one"] >= 9 else ""

    def upload_problem(self, upload, model):
        return "'n' must not be negative" if (upload["n"] < 0).any() else ""


def prepared(client=1, weight=5.0, without=(), **changes):
    tensors = {"rows": torch.zeros(7, 4), "one": torch.tensor(1.0), **changes}
    kept = {name: t for name, t in tensors.items() if name not in without}
    return PrepareReply(client, weight, kept)


def upload(client, domain="art"):
    return StatisticsUpload(client, domain, Statistics.empty(3, 4))


def update(client, number=4, **changes):
    fine = {"c": torch.ones(3), "n": torch.ones(3, dtype=torch.int64)}
    return ClientUpdate(client, number, torch.zeros(15), 1, {**fine, **changes})


def report(client, number):
    return ScoreReport(client, number, {"test": Score(1, 2, 0.5)})


def validate(kind, answer, known):
    """In round 4 client 1 was asked, and the server knows so much."""
    server = SimpleNamespace(
        client_domains=DOMAINS, task=SimpleNamespace(method=Sends()), model=MODEL,
        **{"merged": HEARD[0], "aggregation_weights": {}, **known},
    )  # fmt: skip
    request = Request(kind, 4, {1: ()})
    return kind.validate(SimpleNamespace(server=server), request, answer)


#: Nobody's statistics, or those of one client, have come.
HEARD = [SimpleNamespace(rows=dict.fromkeys(range(1, n + 1), 5)) for n in (0, 1)]
AGAIN = {"aggregation_weights": {1: 5.0}}


@pytest.mark.parametrize(
    ("kind", "answer", "known"),
    [
        *((PREPARE, prepared(rows=torch.zeros(n, 4)), {}) for n in (0, 1, 7)),
        (PREPARE, prepared(), AGAIN),
        (STATISTICS, upload(2, "photo"), {"merged": HEARD[1]}),
        (TRAIN, update(1), {}),
        (EVALUATE, report(2, 4), {}),
    ],
)
def test_what_the_server_takes(kind, answer, known):
    assert validate(kind, answer, known) is None


@pytest.mark.parametrize(
    ("kind", "answer", "known", "field"),
    [
        (PREPARE, prepared(without=("rows", "one")), {}, "init_upload"),
        (PREPARE, prepared(without=["one"]), {}, "init_upload"),
        (PREPARE, prepared(more=torch.zeros(1)), {}, "init_upload"),
        (PREPARE, prepared(rows=torch.zeros(7, 5)), {}, "init_upload.rows"),
        (PREPARE, prepared(rows=torch.zeros(28)), {}, "init_upload.rows"),
        (PREPARE, prepared(one=torch.zeros(1)), {}, "init_upload.one"),
        (PREPARE, prepared(rows=torch.zeros(7, 4).double()), {}, "init_upload.rows"),
        (PREPARE, prepared(one=torch.tensor(1)), {}, "init_upload.one"),
        (PREPARE, prepared(one=torch.tensor(9.0)), {}, "init_upload"),
        (PREPARE, prepared(client=3), {}, "client"),
        *(
            (PREPARE, prepared(1, w), AGAIN, "aggregation_weight")
            for w in (0.0, 4.0, 5.5)
        ),
        (STATISTICS, upload(1), {"merged": HEARD[1]}, "client"),
        (STATISTICS, upload(3), {}, "client"),
        (STATISTICS, upload(1, "photo"), {}, "domain"),
        (TRAIN, ClientUpdate(1, 4, torch.zeros(15), 1, {}), {}, "upload"),
        (TRAIN, update(2), {}, "round"),
        (TRAIN, update(3), {}, "round"),
        (TRAIN, update(1, number=3), {}, "round"),
        (TRAIN, update(1, number=5), {}, "round"),
        (TRAIN, update(1, d=torch.ones(3)), {}, "upload"),
        (TRAIN, update(1, c=torch.ones(4)), {}, "upload.c"),
        (TRAIN, update(1, c=torch.ones(3, 1)), {}, "upload.c"),
        (TRAIN, update(1, c=torch.ones(3).double()), {}, "upload.c"),
        (TRAIN, update(1, n=torch.ones(3)), {}, "upload.n"),
        (TRAIN, update(1, n=torch.tensor([1, -1, 1])), {}, "upload"),
        (EVALUATE, report(3, 4), {}, "client"),
        (EVALUATE, report(2, 3), {}, "round_number"),
    ],
)
def test_what_the_server_does_not_take(kind, answer, known, field):
    with pytest.raises(MessageError) as caught:
        validate(kind, answer, known)
    assert caught.value.sender == f"client {answer.client}"
    assert caught.value.field == field
