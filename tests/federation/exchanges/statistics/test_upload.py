"""The other ways in which statistics travel: in float64, and summed over classes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import ClassStatistics, SummedStatistics

CLASSES, DIM = 5, 6
EXACT = StatisticsForm(exact=True)
SUMMED = StatisticsForm("pooled")
BOTH = StatisticsForm("pooled", exact=True)


def statistics(sizes, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([c for c, n in enumerate(sizes) for _ in range(n)])
    features = (torch.randn(len(labels), DIM, generator=generator) + 3) * scale
    return ClassStatistics.from_embeddings(features, labels.long(), CLASSES)


def sent(held, form):
    """What arrives of `held`, and how many bytes it took."""
    if form.content == "pooled":
        held = SummedStatistics.from_classes(held)
    data = StatisticsUpload(3, "art", held, form).to_bytes()
    schema = MessageSchema(CLASSES, DIM, 1, form)
    arrived = StatisticsUpload.from_bytes(data, schema, "client 3")
    return held, arrived.statistics, len(data)


def spoilt(held, form, change, schema=None):
    """What `from_bytes` says to a message whose tensors `change` has been at."""
    if form.content == "pooled":
        held = SummedStatistics.from_classes(held)
    message = wire.unpack(
        StatisticsUpload(3, "art", held, form).to_bytes(), "statistics", "client 3"
    )
    tensors = dict(message._tensors)
    change(tensors)
    data = wire.pack("statistics", {"client": 3, "domain": "art"}, tensors)
    schema = schema or MessageSchema(CLASSES, DIM, 1, form)
    with pytest.raises(MessageError) as found:
        StatisticsUpload.from_bytes(data, schema, "client 3")
    return str(found.value)


SIZES = st.lists(st.integers(0, 30), min_size=CLASSES, max_size=CLASSES)


@settings(max_examples=60)
@given(sizes=SIZES)
def test_exact_means_to_the_last_digits(sizes):
    held, arrived, _ = sent(statistics(sizes), EXACT)
    assert torch.equal(arrived.counts, held.counts)
    assert torch.equal(arrived.means, held.means)
    for c in held.classes:
        error = (arrived.scatter(c) - held.scatter(c)).abs().max()
        assert error <= 1e-13 * held.scatter(c).abs().max()


@settings(max_examples=60)
@given(sizes=SIZES, form=st.sampled_from([SUMMED, BOTH]))
def test_a_summed_scatter_arrives(sizes, form):
    held, arrived, _ = sent(statistics(sizes), form)
    assert isinstance(arrived, SummedStatistics)
    assert torch.equal(arrived.counts, held.counts)
    assert torch.equal(arrived.means, held.means)
    tolerance = 1e-13 if form.exact else 1e-6
    error = (arrived.scatter() - held.scatter()).abs().max()
    assert error <= tolerance * held.scatter().abs().max()


@settings(max_examples=100)
@given(
    sizes=SIZES,
    form=st.sampled_from([StatisticsForm(), EXACT, SUMMED, BOTH]),
    exponent=st.floats(-30, 10),
)
def test_embeddings_of_any_scale_arrive(sizes, form, exponent):
    """Also where float32 cannot hold the squares of them."""
    held, arrived, _ = sent(statistics(sizes, scale=10.0**exponent), form)
    assert torch.equal(arrived.means, held.means)
    tolerance = 1e-13 if form.exact else 1e-6
    by_class = [()] if form.content == "pooled" else [(c,) for c in held.classes]
    for c in by_class:
        wanted, found = held.scatter(*c), arrived.scatter(*c)
        assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_summed_takes_fewer_bytes_and_exact_more():
    held = statistics([20] * CLASSES)
    plain = sent(held, StatisticsForm())[2]
    assert sent(held, SUMMED)[2] < plain < sent(held, EXACT)[2]


def test_what_does_not_fit_is_refused_by_name():
    held = statistics([20, 3, 0, 1, 2])
    few = statistics([2, 2, 0, 1, 2])

    def narrower(tensors):
        tensors["triangles"] = tensors["triangles"].float()

    assert "triangles" in spoilt(held, BOTH, narrower)

    def negative(tensors):
        tensors["triangles"] = -tensors["triangles"]

    assert "must be positive semi-definite" in spoilt(held, BOTH, negative)

    def longer(tensors):
        tensors["factors"] = torch.ones(5, DIM)
        tensors["ranks"] = torch.tensor([5])

    assert "at most n - 1 and at most D rows" in spoilt(few, SUMMED, longer)

    def two(tensors):
        tensors["ranks"] = torch.tensor([1, 1])

    assert "ranks" in spoilt(few, SUMMED, two)

    def nothing(tensors):
        pass

    by_class = MessageSchema(CLASSES, DIM, 1)
    assert "ranks" in spoilt(held, SUMMED, nothing, by_class)


@pytest.mark.parametrize("form", [StatisticsForm(), EXACT, SUMMED, BOTH])
def test_what_no_embeddings_have_is_refused(form):
    wide, few = statistics([20] * CLASSES), statistics([3] * CLASSES)

    def set_to(name, value):
        def change(tensors):
            assert tensors[name].numel()
            tensors[name][...] = value

        return change

    assert "means must lie" in spoilt(few, form, set_to("means", 1e30))
    if form.exact:
        assert "triangles" in spoilt(wide, form, set_to("triangles", 1e200))
    if form.content != "pooled":  # what float32 holds, the sum of many rows may reach
        assert "triangles" in spoilt(wide, form, set_to("triangles", 1e38))
        assert "factors" in spoilt(few, form, set_to("factors", 1e30))


def test_exact_covariances_may_not_be_indefinite_at_all():
    held = statistics([20] * CLASSES)

    def slightly(tensors):
        # Of the matrix of ones, whose eigenvalues are D and 0, a hair less.
        triangle = torch.ones(CLASSES, DIM * (DIM + 1) // 2, dtype=torch.float64)
        rows, columns = torch.triu_indices(DIM, DIM)
        triangle[:, rows == columns] -= 1e-7
        tensors["triangles"] = triangle

    assert "must be positive semi-definite" in spoilt(held, EXACT, slightly)
