"""Each way in which statistics travel: what arrives, what is refused, how large.

Tests of compressed statistics, too.
"""

import zlib
from dataclasses import replace

import pytest
import torch
from by_bytes import make_rows
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.space import rows_for_totals
from federatedscope_ggeur.federation.exchanges.statistics import Compress, Threshold
from federatedscope_ggeur.federation.exchanges.statistics.upload import (
    StatisticsUpload,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import Compression, Statistics

CLASSES, DIM = 5, 12
WHOLE_SCATTER = Compression()


def packed(content, how=WHOLE_SCATTER):
    return StatisticsForm(content, steps=(Compress(how),))


PLAIN = StatisticsForm()
EXACT = StatisticsForm(exact=True)
SUMMED = StatisticsForm("pooled")
BOTH = StatisticsForm("pooled", exact=True)
WHOLE = [PLAIN, EXACT, SUMMED, BOTH]
MEANS = [StatisticsForm("means"), StatisticsForm("means", exact=True)]
PACKED = [
    packed(content, Compression(4, dtype=dtype))
    for content in ("pooled", "means")
    for dtype in ("float32", "float16", "int8")
]
INT8 = PACKED[2]
SIZES = st.lists(st.integers(0, 40), min_size=CLASSES, max_size=CLASSES)
SOME = (9, 3, 0, 1, 40)


def statistics(sizes, scale=1.0, dim=DIM):
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([c for c, n in enumerate(sizes) for _ in range(n)])
    features = torch.randn(len(labels), dim, generator=generator).double() + 3
    features = features * torch.linspace(3, 0.1, dim)
    return Statistics.from_embeddings(scale * features, labels.long(), CLASSES)


def upload(held, form):
    return StatisticsUpload(3, "art", form.leave(held.to(form.content)), form)


def arrive(data, form, number=3):
    schema = MessageSchema(CLASSES, DIM, 1, form)
    return StatisticsUpload.from_bytes(data, schema, f"client {number}")


def opened(form, sizes=SOME):
    data = upload(statistics(sizes), form).to_bytes()
    return wire.unpack(data, "statistics", "client 3")


def refused(form, change=lambda tensors: None, sizes=SOME, read=None, **numbers):
    """The error of a message whose tensors `change` has been at, and with other
    numbers; None removes one."""
    message = opened(form, sizes)
    tensors = dict(message._tensors)
    change(tensors)
    own = {**message._numbers, **numbers}
    own = {name: value for name, value in own.items() if value is not None}
    with pytest.raises(MessageError) as caught:
        arrive(wire.pack("statistics", own, tensors), read or form)
    assert caught.value.sender == "client 3"
    return caught.value


def put(name, value):
    def change(tensors):
        tensors[name] = value(tensors[name]) if callable(value) else value

    return change


def filled(name, value):
    return put(name, lambda tensor: torch.full_like(tensor, value))


@examples(80)
@given(SIZES, st.sampled_from([*WHOLE, *MEANS]), st.floats(-30, 10))
def test_embeddings_of_any_scale_arrive(sizes, form, exponent):
    """Also where float32 cannot hold the squares of them."""
    held = statistics(sizes, scale=10.0**exponent).to(form.content)
    arrived = arrive(StatisticsUpload(3, "art", held, form).to_bytes(), form).statistics
    assert type(arrived) is type(held)
    assert torch.equal(arrived.counts, held.counts)
    assert torch.equal(arrived.means, held.means)
    tolerance = 1e-13 if form.exact else 1e-6
    assert arrived.content == held.content
    by_class = [(c,) for c in held.classes]
    for c in {"class": by_class, "pooled": [()], "means": []}[form.content]:
        wanted, found = held.scatter(*c), arrived.scatter(*c)
        assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


@examples(80)
@given(SIZES, st.sampled_from(PACKED), st.sampled_from([1e-20, 1.0, 1e6]))
def test_what_arrives_is_what_was_restored_to_the_bit(sizes, form, scale):
    before = upload(statistics(sizes, scale), form)
    after = arrive(before.to_bytes(), form)
    wanted = before.statistics.restore()
    assert type(after.statistics) is type(wanted)
    assert torch.equal(after.statistics.counts, wanted.counts)
    assert torch.equal(after.statistics.means, wanted.means)
    if form.content == "pooled":
        assert torch.equal(after.statistics.scatter(), wanted.scatter())
    assert (after.client, after.domain) == (3, "art")


def test_a_scatter_travels_as_the_smaller_of_factor_and_triangle():
    assert opened(PLAIN)._tensors["ranks"].tolist() == [-1, 2, 0, -1]


@pytest.mark.parametrize("forms", [(EXACT, PLAIN, SUMMED, *PACKED[:3]), PACKED[3:]])
def test_the_less_is_sent_the_fewer_bytes(forms):
    held = statistics([220] * CLASSES, dim=200)
    sizes = [len(upload(held, form).to_bytes()) for form in forms]
    assert sizes == sorted(set(sizes), reverse=True)
    if INT8 in forms:
        assert sizes[-1] < (CLASSES + 1 + 4) * 200 + 1000


def test_a_class_by_itself_cannot_be_compressed():
    with pytest.raises(ValueError, match="pooled"):
        packed("class")
    with pytest.raises(ValueError, match="content"):
        StatisticsForm("summed")


ALL = [*WHOLE, *PACKED, MEANS[0]]


@pytest.mark.parametrize("form", ALL)
def test_a_missing_tensor_another_type_or_shape_or_one_more_is_refused(form):
    for name in opened(form)._tensors:
        assert refused(form, lambda tensors, n=name: tensors.pop(n)).field == name
        assert refused(form, put(name, lambda t: t.to(torch.complex64))).field == name
        assert refused(form, put(name, lambda t: t[None])).field == name
    others = {name for other in ALL for name in opened(other)._tensors}
    for name in (others - opened(form)._tensors.keys()) | {"rows", "x" * 500}:
        error = refused(form, put(name, torch.ones(2)))
        assert error.field == name[:80]
        assert "no such tensor" in str(error)


@pytest.mark.parametrize("form", PACKED)
def test_numbers_that_are_none_are_refused(form):
    for name in {"means_scales", "factor_scales"} & opened(form)._tensors.keys():
        for value in (float("nan"), float("inf"), -1.0):
            assert refused(form, filled(name, value)).field == name
    if form.packing.how.dtype != "int8":
        assert refused(form, filled("means", float("nan"))).field == "means"
    if form.content != "means":
        for value in (None, -1.0, "1", True):  # JSON has no infinity
            assert refused(form, left_out=value).field == "left_out"


def test_more_rows_than_there_can_be_are_refused():
    longer = put("factor_scales", torch.ones(5).double())
    error = refused(INT8, longer)
    assert error.field == "factor_scales"
    assert "expected 0 to 4 rows, got 5" in str(error)
    error = refused(INT8, longer, sizes=(3, 0, 0, 0, 1))
    assert "expected 0 to 2" in str(error)
    for change in (lambda t: t[:-1], lambda t: torch.cat([t, t])):
        assert refused(INT8, put("means_scales", change)).field == "means_scales"

    def five(tensors):
        tensors["factors"], tensors["ranks"] = torch.ones(5, DIM), torch.tensor([5])

    few = (2, 2, 0, 1, 2)
    assert "at most n - 1 and at most D rows" in str(refused(SUMMED, five, few))
    two = put("ranks", torch.tensor([1, 1]))
    assert refused(SUMMED, two, few).field == "ranks"
    assert refused(SUMMED, read=PLAIN).field == "ranks"


@pytest.mark.parametrize("form", [*WHOLE, INT8])
def test_what_no_embeddings_have_is_refused(form):
    wide, few = (40,) * CLASSES, (3,) * CLASSES
    if form is INT8:
        for name in ("means", "factor"):
            assert refused(form, filled(f"{name}_scales", 1e200)).field == name
        assert refused(form, left_out=1e300).field == "left_out"
        return
    assert "'means': must lie" in str(refused(form, filled("means", 1e30), few))
    if form.exact:
        assert refused(form, filled("triangles", 1e200), wide).field == "triangles"
    if form.content != "pooled":  # what float32 holds, the sum of many rows may reach
        assert refused(form, filled("triangles", 1e38), wide).field == "triangles"
        assert refused(form, filled("factors", 1e30), few).field == "factors"


def test_energy_left_out_of_nothing_is_refused():
    """Where all directions are there, or one sample a class leaves none."""
    wide = packed("pooled")
    assert refused(wide, left_out=1.0).field == "left_out"
    error = refused(INT8, sizes=(1, 1, 0, 0, 0), left_out=1.0)
    assert error.field == "left_out"


def test_exact_covariances_may_not_be_indefinite_at_all():
    # Of the matrix of ones, whose eigenvalues are D and 0, a hair less.
    triangle = torch.ones(CLASSES, DIM * (DIM + 1) // 2, dtype=torch.float64)
    rows, columns = torch.triu_indices(DIM, DIM)
    triangle[:, rows == columns] -= 1e-7
    for form, wrong in (
        (EXACT, put("triangles", triangle)),
        (BOTH, put("triangles", lambda t: -t)),
    ):
        error = refused(form, wrong, sizes=(40,) * CLASSES)
        assert "must be positive semi-definite" in str(error)


def test_packed_numbers_that_unpack_to_another_size_are_refused():
    def packed(size):
        coder = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = coder.compress(bytes(size)) + coder.flush()
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    whole = 4 * DIM
    spoilt = [
        packed(whole - 1),
        packed(whole + 1),
        packed(10**8),  # a bomb: a hundred kilobytes that would fill memory
        packed(whole)[:-1],
        torch.cat([packed(whole), packed(1)]),
        torch.full((20,), 255, dtype=torch.uint8),
        torch.zeros(0, dtype=torch.uint8),
    ]
    for value in spoilt:
        error = refused(INT8, put("factor", value))
        assert error.field == "factor"
        assert f"unpack to {whole} numbers" in str(error)


@pytest.mark.parametrize("form", ALL)
def test_no_samples_arrive_as_no_samples(form):
    found = arrive(upload(statistics([0] * CLASSES), form).to_bytes(), form).statistics
    assert (found.classes, found.num_classes, found.dim) == ([], CLASSES, DIM)


@pytest.mark.parametrize("content", ["class", "pooled", "means"])
def test_weights_travel_beside_counts(content):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(60, DIM, generator=generator)
    labels = torch.arange(60) % 4
    weights = torch.rand(60, generator=generator).double() + 0.1
    held = Statistics.from_embeddings(rows, labels, CLASSES, weights)
    form = StatisticsForm(content, exact=True, weighted=True)
    data = upload(held, form).to_bytes()
    found = arrive(data, form).statistics
    assert torch.equal(found.weights, held.weights)
    assert torch.equal(found.counts, held.counts)
    if content != "means":
        torch.testing.assert_close(found.scatter(), held.scatter())
    with pytest.raises(MessageError, match="weights"):
        arrive(data, replace(form, weighted=False))
    plainly = upload(held, replace(form, weighted=False)).to_bytes()
    with pytest.raises(MessageError, match="weights"):
        arrive(plainly, form)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), 1e30])
def test_a_wrong_weight_is_refused(wrong):
    form = StatisticsForm("means", weighted=True)
    rows, ones = torch.randn(9, DIM), torch.ones(9).double()
    held = Statistics.from_embeddings(rows, torch.zeros(9).long(), CLASSES, ones)
    held.weights[0] = wrong
    with pytest.raises(MessageError, match="weights"):
        arrive(upload(held, form).to_bytes(), form)


# The min-count threshold: a class of too few samples leaves no trace.


@pytest.mark.parametrize("least", [1, 2, 3, 6, 7])
def test_bytes_are_those_of_a_client_without_the_withheld_classes(least):
    features, labels = make_rows(12, seed=0)
    counts = torch.bincount(labels)
    assert counts.tolist() == [2, 3, 1, 6]
    held = (counts >= least)[labels]
    whole = Statistics.from_embeddings(features, labels, 4)
    without = Statistics.from_embeddings(features[held], labels[held], 4)
    sent = StatisticsUpload(1, "art", Threshold(least).leave(whole))
    assert sent.to_bytes() == StatisticsUpload(1, "art", without).to_bytes()


def allowed_rows(sizes, min_samples, after_statistics):
    """Classes of the rows that totals are of, where class c has sizes[c] rows."""
    counts = torch.tensor(sizes)
    labels = torch.arange(len(sizes)).repeat_interleave(counts)
    mask = rows_for_totals(labels, counts, min_samples, after_statistics)
    return labels[mask].tolist()


@pytest.mark.parametrize(
    ("sizes", "alone", "beside"),
    [
        # Classes 1 to 3 are withheld, seven rows in all: enough to be told of.
        ((5, 1, 2, 4), [0] * 5 + [1] + [2] * 2 + [3] * 4, [1] + [2] * 2 + [3] * 4),
        # Four withheld rows are too few, whatever else there is.
        ((6, 4), [0] * 6, []),
        ((6, 2, 2), [0] * 6, []),
        # Of no class enough, but of all together.
        ((3, 2), [0] * 3 + [1] * 2, [0] * 3 + [1] * 2),
        ((3, 1), [], []),
        ((5, 5), [0] * 5 + [1] * 5, []),
        ((0, 0), [], []),
    ],
    ids=str,
)
def test_which_rows_totals_are_of(sizes, alone, beside):
    assert allowed_rows(sizes, 5, after_statistics=False) == alone
    assert allowed_rows(sizes, 5, after_statistics=True) == beside


@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    min_samples=st.integers(1, 8),
)
def test_no_difference_of_sums_is_over_fewer_rows_than_the_threshold(
    sizes, min_samples
):
    """Whichever of the totals is sent, less what statistics or methods tell of the
    classes that pass: the rest is nobody, or as many rows as the threshold asks."""
    passing = {c for c, n in enumerate(sizes) if n >= min_samples}
    alone = allowed_rows(sizes, min_samples, after_statistics=False)
    beside = allowed_rows(sizes, min_samples, after_statistics=True)
    rest = [c for c in alone if c not in passing]
    assert len(rest) == 0 or len(rest) >= min_samples
    assert [c for c in alone if c in passing] == [
        c for c in sorted(passing) for _ in range(sizes[c])
    ]
    # Beside statistics the others are not summed a second time.
    assert beside == rest
