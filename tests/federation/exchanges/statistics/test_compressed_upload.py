"""Statistics in few bytes, over the wire: what arrives, what is refused, how large."""

import zlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import (
    ClassStatistics,
    CompressedStatistics,
    Compression,
    MeanStatistics,
)

CLASSES, DIM = 5, 12
FORMS = [
    StatisticsForm(content, compression=Compression(4, dtype=dtype))
    for content in ("pooled", "means")
    for dtype in ("float32", "float16", "int8")
]
INT8 = FORMS[2]


def statistics(sizes, scale=1.0, dim=DIM):
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([c for c, n in enumerate(sizes) for _ in range(n)])
    features = torch.randn(len(labels), dim, generator=generator).double() + 3
    features = features * torch.linspace(3, 0.1, dim)
    return ClassStatistics.from_embeddings(scale * features, labels.long(), CLASSES)


def upload(held, form):
    return StatisticsUpload.of(3, "art", held, form)


def arrive(data, form, dim=DIM):
    return StatisticsUpload.from_bytes(
        data, MessageSchema(CLASSES, dim, 1, form), "client 3"
    )


SIZES = st.lists(st.integers(0, 20), min_size=CLASSES, max_size=CLASSES)


@settings(max_examples=80)
@given(SIZES, st.sampled_from(FORMS), st.sampled_from([1e-20, 1.0, 1e6]))
def test_what_arrives_is_what_was_restored_to_the_bit(sizes, form, scale):
    before = upload(statistics(sizes, scale), form)
    after = arrive(before.to_bytes(), form)
    held, loss = CompressedStatistics.of(before.statistics, form.compression)
    wanted = held.restore()
    assert type(after.statistics) is type(wanted)
    assert torch.equal(after.statistics.counts, wanted.counts)
    assert torch.equal(after.statistics.means, wanted.means)
    if form.content == "pooled":
        assert torch.equal(after.statistics.scatter(), wanted.scatter())
    assert after.loss.energy == pytest.approx(loss.energy, rel=1e-12, abs=0)
    assert replace(after.loss, energy=0) == replace(loss, energy=0)
    assert (after.client, after.domain) == (3, "art")


@pytest.mark.parametrize("exact", [True, False])
def test_means_alone_travel_whole(exact):
    form = StatisticsForm("means", exact)
    before = upload(statistics([3, 0, 9, 1, 4]), form)
    after = arrive(before.to_bytes(), form)
    assert isinstance(after.statistics, MeanStatistics)
    assert torch.equal(after.statistics.means, before.statistics.means)
    assert torch.equal(after.statistics.counts, before.statistics.counts)
    assert after.loss is None
    pooled = upload(statistics([3, 0, 9, 1, 4]), StatisticsForm("pooled"))
    assert len(before.to_bytes()) < len(pooled.to_bytes())


def test_the_fewer_bits_the_fewer_bytes():
    held = statistics([40] * CLASSES, dim=200)
    sizes = [len(upload(held, form).to_bytes()) for form in FORMS]
    exact = len(upload(held, StatisticsForm("pooled")).to_bytes())
    assert exact > sizes[0] > sizes[1] > sizes[2]
    assert sizes[3] > sizes[4] > sizes[5]
    numbers = (CLASSES + 1 + 4) * 200
    assert sizes[2] < numbers + 1000


def test_a_class_by_itself_cannot_be_compressed():
    with pytest.raises(ValueError, match="pooled"):
        StatisticsForm("class", compression=Compression())
    with pytest.raises(ValueError, match="content"):
        StatisticsForm("summed")


def refused(form, change, sizes=(9, 3, 0, 1, 7), **numbers):
    """The error of a message whose tensors `change` has been at; None removes."""
    message = wire.unpack(
        upload(statistics(sizes), form).to_bytes(), "statistics", "client 3"
    )
    tensors = dict(message._tensors)
    change(tensors)
    own = {**message._numbers, **numbers}
    own = {name: value for name, value in own.items() if value is not None}
    data = wire.pack("statistics", own, tensors)
    with pytest.raises(MessageError) as caught:
        arrive(data, form)
    assert caught.value.sender == "client 3"
    return caught.value


def nothing(tensors):
    pass


def put(name, value):
    def change(tensors):
        tensors[name] = value(tensors[name]) if callable(value) else value

    return change


TENSORS = [
    (form, name)
    for form in FORMS
    for name in ("classes", "counts", "means", "means_scales", "factor",
                 "factor_scales")
    if form.content == "pooled" or not name.startswith("factor")
]  # fmt: skip


@pytest.mark.parametrize(("form", "name"), TENSORS)
def test_a_missing_tensor_another_type_or_shape_is_refused(form, name):
    assert refused(form, lambda tensors: tensors.pop(name)).field == name
    assert refused(form, put(name, lambda t: t.to(torch.complex64))).field == name
    assert refused(form, put(name, lambda t: t[None])).field == name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["ranks", "factors", "triangles", "rows", "x" * 500])
def test_a_tensor_that_the_form_does_not_name_is_refused(form, name):
    error = refused(form, _also(name))
    assert error.field == name[:80]
    assert "no such tensor" in str(error)


def _also(name):
    def change(tensors):
        tensors[name] = torch.ones(2)

    return change


@pytest.mark.parametrize("content", ["class", "pooled", "means"])
def test_so_it_is_without_compression(content):
    form = StatisticsForm(content)
    assert refused(form, _also("rows")).field == "rows"
    if content == "means":
        assert refused(form, _also("factors")).field == "factors"


@pytest.mark.parametrize("form", FORMS)
def test_numbers_that_are_none_are_refused(form):
    for name in ("means_scales", "factor_scales"):
        if form.content == "means" and name == "factor_scales":
            continue
        for value in (float("nan"), float("inf"), -1.0):
            change = put(name, lambda t, v=value: torch.full_like(t, v))
            assert refused(form, change).field == name
    if form.compression.dtype != "int8":
        change = put("means", lambda t: torch.full_like(t, float("nan")))
        assert refused(form, change).field == "means"
    for name in ("lost.scatter", "lost.rounding", "lost.means"):
        for value in (None, -1.0, float("inf"), "1", True):
            if value == float("inf"):
                continue  # JSON has none, and packing refuses it
            assert refused(form, nothing, **{name: value}).field == name


def test_more_directions_than_there_can_be_are_refused():
    def longer(tensors):
        tensors["factor_scales"] = torch.ones(5).double()

    error = refused(INT8, longer)
    assert error.field == "factor_scales"
    assert "expected 0 to 4 rows, got 5" in str(error)
    error = refused(INT8, longer, sizes=(3, 0, 0, 0, 1))
    assert "expected 0 to 2" in str(error)


def test_more_or_fewer_means_than_classes_are_refused():
    for change in (lambda t: t[:-1], lambda t: torch.cat([t, t])):
        assert refused(INT8, put("means_scales", change)).field == "means_scales"


def test_what_no_embeddings_have_is_refused():
    for name in ("means", "factor"):
        change = put(f"{name}_scales", lambda t: torch.full_like(t, 1e200))
        assert refused(INT8, change).field == name
    assert refused(INT8, nothing, left_out=1e300).field == "left_out"


def test_energy_left_out_of_nothing_is_refused():
    """Where all directions are there, or one sample a class leaves none."""
    wide = StatisticsForm("pooled", compression=Compression())
    assert refused(wide, nothing, left_out=1.0).field == "left_out"
    error = refused(INT8, nothing, sizes=(1, 1, 0, 0, 0), left_out=1.0)
    assert error.field == "left_out"


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


def test_no_samples_arrive_as_no_samples():
    for form in FORMS:
        after = arrive(upload(statistics([0] * CLASSES), form).to_bytes(), form)
        assert after.statistics.classes == []
        assert after.loss.left_out == after.loss.means == 0
