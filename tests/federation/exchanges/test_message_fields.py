"""A field that does not hold what it should is refused by sender and field."""

import pytest
import torch
from spoilt_messages import (
    DIM,
    PARAMS,
    PAYLOADS,
    SCHEMA,
    VALID,
    pack,
    refusal,
    with_tensor,
)

from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.space.messages import (
    SpaceBroadcast,
    TotalsUpload,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.geometry import Space

NAN, INF = float("nan"), float("inf")
TENSORS = [(payload, name) for payload in PAYLOADS for name in VALID[payload][2]]
FLOATS = [(p, name) for p, name in TENSORS if VALID[p][2][name].is_floating_point()]
OWN = ("init_upload.a", "init_broadcast.a", "download.c", "upload.c")
#: May be missing, or of any length; test_leave_one_out.py has what they may not.
OWN += ("scatter", "hits")
#: Of any length here; test_noisy_runs.py has what the server refuses.
OWN += ("values",)
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
    for spoilt in (tensor[None], tensor.sum(), torch.cat([tensor, tensor])):
        data = pack(payload, tensors={name: spoilt})
        # A longer list of classes shows as a shorter list of something else.
        expected = {name} | ({"counts", "ranks", "prototypes"} & set(VALID[payload][2]))
        assert refusal(payload, data).field in expected


@pytest.mark.parametrize(("payload", "name"), FLOATS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_number_that_is_none_is_refused(payload, name, value):
    spoilt = VALID[payload][2][name].clone()
    spoilt.flatten()[-1] = value
    error = refusal(payload, pack(payload, tensors={name: spoilt}))
    assert error.field == name
    assert "NaN or infinity" in str(error)


def test_a_methods_tensor_of_too_many_dimensions_is_refused():
    data = with_tensor("F32", [1] * 70, 4)
    assert refusal(PrepareReply, data).field == "init_upload.a"


NUMBERS = [(payload, name) for payload in PAYLOADS for name in VALID[payload][1]]


@pytest.mark.parametrize(("payload", "name"), NUMBERS)
@pytest.mark.parametrize("value", [None, -1, NAN, INF, -INF, True, [1], {}, 10**400])
def test_a_wrong_number_is_refused(payload, name, value):
    assert refusal(payload, pack(payload, numbers={name: value})).field == name


@pytest.mark.parametrize(("payload", "name"), NUMBERS)
def test_a_text_for_a_number_or_a_number_for_a_text_is_refused(payload, name):
    value = 5 if name in ("domain", "kind", "stage") else "5"
    assert refusal(payload, pack(payload, numbers={name: value})).field == name


@pytest.mark.parametrize("name", ["client", "round", "steps"])
def test_a_fraction_for_an_integer_is_refused(name):
    assert refusal(ClientUpdate, pack(ClientUpdate, {name: 1.5})).field == name


@pytest.mark.parametrize("name", ["client", "round"])
def test_clients_and_rounds_count_from_one(name):
    assert refusal(ClientUpdate, pack(ClientUpdate, {name: 0})).field == name


def test_more_right_than_rows_is_refused():
    spoilt = pack(ScoreReport, {"val_correct": 6})
    assert refusal(ScoreReport, spoilt).field == "val_correct"


def test_scores_of_rows_that_nobody_has_are_refused():
    spoilt = pack(ScoreReport, {"splits": ["val", "dev"]})
    assert refusal(ScoreReport, spoilt).field == "splits"


def test_a_weight_that_no_client_can_have_is_refused():
    assert (
        refusal(PrepareReply, pack(PrepareReply, {"aggregation_weight": 1e308})).field
        == "aggregation_weight"
    )


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        ({"count": 0}, "mean"),
        ({"count": 1}, "spread"),
        ({"spread": 1e60}, "spread"),
        ({"within": 1.0}, "within"),  # which is for statistics without scatters
    ],
    ids=str,
)
def test_totals_that_no_rows_have_are_refused(spoilt, field):
    assert refusal(TotalsUpload, pack(TotalsUpload, spoilt)).field == field


def test_a_mean_that_no_embeddings_have_is_refused():
    spoilt = {"mean": torch.full((DIM,), 1e16, dtype=torch.float64)}
    assert refusal(TotalsUpload, pack(TotalsUpload, None, spoilt)).field == "mean"


@pytest.mark.parametrize("name", ["squares", "within_squares"])
@pytest.mark.parametrize("value", [-1.0, 1e12, float("nan")])
def test_squares_that_no_rows_have_are_refused(name, value):
    spoilt = {name: torch.full((DIM,), value, dtype=torch.float64)}
    assert refusal(TotalsUpload, pack(TotalsUpload, None, spoilt)).field == name


@pytest.mark.parametrize(
    ("numbers", "field"),
    [
        ({"kind": "warped"}, "kind"),
        ({"scale": 0}, "scale"),
        ({"kind": "standard"}, "triangle"),
    ],
    ids=str,
)
def test_a_space_that_is_none_is_refused(numbers, field):
    assert refusal(SpaceBroadcast, pack(SpaceBroadcast, numbers)).field == field


@pytest.mark.parametrize(
    ("kind", "scales"),
    [
        ("standard", [1.0, 2.0, 0.0, 1.0]),
        ("standard", [1.0, 2.0, -3.0, 1.0]),
        ("standard", [1.0, 2.0]),
        ("whitened", [1.0, 2.0, 3.0, 1.0]),
    ],
)
def test_scales_that_no_space_has_are_refused(kind, scales):
    space = Space(
        kind,
        torch.ones(DIM, dtype=torch.float64),
        1.0,
        None if kind == "standard" else torch.eye(DIM, dtype=torch.float64),
        torch.tensor(scales, dtype=torch.float64),
    )
    assert refusal(SpaceBroadcast, SpaceBroadcast(space).to_bytes()).field == "scales"


def test_a_space_that_cannot_be_left_again_is_refused():
    flat = {"triangle": torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0, 0, 1])}
    data = pack(SpaceBroadcast, None, flat)
    assert refusal(SpaceBroadcast, data).field == "triangle"


SPOILT = {
    "classes negative": (StatisticsUpload, "classes", [-1, 2]),
    "classes too high": (StatisticsUpload, "classes", [0, 3]),
    "classes far too high": (StatisticsUpload, "classes", [0, 2**63 - 1]),
    "classes unsorted": (StatisticsUpload, "classes", [2, 0]),
    "classes repeated": (StatisticsUpload, "classes", [2, 2]),
    "count zero": (StatisticsUpload, "counts", [0, 9]),
    "count negative": (StatisticsUpload, "counts", [2, -9]),
    "count overflows": (StatisticsUpload, "counts", [2, 2**62]),
    "triangle of one sample": (StatisticsUpload, "counts", [2, 1], "ranks"),
    "rank above n - 1": (StatisticsUpload, "ranks", [2, -1]),
    "rank above D": (StatisticsUpload, "ranks", [1, 5]),
    "rank below -1": (StatisticsUpload, "ranks", [1, -2]),
    "rank of 2**63 - 1": (StatisticsUpload, "ranks", [2**63 - 1, -1]),
    "rank of -2**63": (StatisticsUpload, "ranks", [1, -(2**63)]),
    "ranks without factors": (StatisticsUpload, "ranks", [0, -1], "factors"),
    "ranks without triangles": (StatisticsUpload, "ranks", [1, 0], "triangles"),
    "geometry class too high": (Geometry, "classes", [0, 3]),
    "geometry classes unsorted": (Geometry, "classes", [2, 0]),
    "geometry rank above D": (Geometry, "ranks", [1, 5]),
    "geometry rank negative": (Geometry, "ranks", [4, -1]),
    "geometry ranks too few": (Geometry, "ranks", [1, 1], "eigenvalues"),
    "eigenvalue zero": (Geometry, "eigenvalues", [1.0, 0.0, 1.0]),
    "eigenvalue negative": (Geometry, "eigenvalues", [1.0, 2.0, -1.0]),
    "prototype class too high": (Prototypes, "labels", [0, 3]),
    "prototype class negative": (Prototypes, "labels", [-1, 0]),
}


@pytest.mark.parametrize("case", SPOILT.values(), ids=SPOILT)
def test_values_out_of_range_are_refused(case):
    payload, name, values, *other_field = case
    dtype = torch.float64 if isinstance(values[0], float) else torch.int64
    data = pack(payload, tensors={name: torch.tensor(values, dtype=dtype)})
    assert refusal(payload, data).field == (other_field or [name])[0]


@pytest.mark.parametrize("length", [0.0, 0.5, 2.0])
def test_an_eigenvector_that_is_not_a_direction_is_refused(length):
    vectors = torch.eye(DIM)[:3]
    vectors[1] *= length
    data = pack(Geometry, tensors={"eigenvectors": vectors})
    assert refusal(Geometry, data).field == "eigenvectors"


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


def test_a_covariance_that_no_embeddings_have_is_refused():
    triangle = torch.tensor([[2e30, 0, 0, 0, 1, 0, 0, 1, 0, 1]])
    error = refusal(
        StatisticsUpload, pack(StatisticsUpload, None, {"triangles": triangle})
    )
    assert error.field == "triangles"
    assert "no embeddings have such" in str(error)


@pytest.mark.parametrize("length", [0, 1, PARAMS - 1, PARAMS + 1])
@pytest.mark.parametrize("payload", [Broadcast, ClientUpdate])
def test_weights_of_another_head_are_refused(payload, length):
    data = pack(payload, tensors={"params": torch.ones(length)})
    assert refusal(payload, data).field == "params"
