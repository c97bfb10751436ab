"""Folding: a model gives on raw embeddings what it gives in its space, and back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Space, Statistics, Totals
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    fold,
    named_tensors,
    to_vector,
    unfold,
)

CLASSES = 4
HEADS = {"linear": ModelSettings(), "mlp": ModelSettings(hidden=6, dropout=0.5)}


def draw(dim, seed, scale, offset):
    rng = np.random.default_rng(seed)
    labels = torch.arange(40) % CLASSES
    rows = rng.normal(size=(40, dim)) * np.linspace(0.5, 1.5, dim) + rng.normal(
        size=dim
    )
    return torch.from_numpy(scale * (rows + offset)).float(), labels


def make(kind, rows, labels):
    if kind == "raw":
        return Space.raw(rows.shape[1])
    totals = Totals.of_rows(rows)
    if kind == "standard":
        return Space.standard(totals)
    statistics = Statistics.from_embeddings(rows, labels, CLASSES)
    return Space.whitened(totals, statistics, 0.3)


def trained(head, dim, seed):
    """A model with weights of the size that training leaves, and them as a vector."""
    model = build_model(dim, CLASSES, HEADS[head])
    model.reset(torch.Generator().manual_seed(seed))
    return model, 5 * to_vector(model)


@pytest.mark.slow
@given(
    kind=st.sampled_from(["raw", "standard", "whitened"]),
    head=st.sampled_from([*HEADS]),
    dim=st.integers(1, 24),
    seed=st.integers(0, 99),
    scale=st.sampled_from([0.03, 1.0, 40.0]),
    offset=st.sampled_from([0.0, 3.0]),
)
@settings(deadline=None)
def test_logits_on_raw_embeddings_are_those_in_the_space(
    kind, head, dim, seed, scale, offset
):
    rows, labels = draw(dim, seed, scale, offset)
    space = make(kind, rows, labels)
    model, params = trained(head, dim, seed)
    inside = model.at(params)(space.features(rows))
    outside = model.at(fold(model, params, space))(rows)
    assert (inside - outside).abs().max() <= 1e-4


@pytest.mark.slow
@given(
    kind=st.sampled_from(["raw", "standard", "whitened"]),
    head=st.sampled_from([*HEADS]),
    dim=st.integers(1, 24),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_unfold_undoes_fold(kind, head, dim, seed):
    rows, labels = draw(dim, seed, 1.0, 1.0)
    space = make(kind, rows, labels)
    model, params = trained(head, dim, seed)
    there_and_back = unfold(model, fold(model, params, space), space)
    torch.testing.assert_close(there_and_back, params, rtol=1e-4, atol=1e-4)
    inside = model.at(unfold(model, params, space))(space.features(rows))
    torch.testing.assert_close(inside, model.at(params)(rows), rtol=1e-4, atol=1e-4)


def test_of_an_mlp_the_first_layer_alone_is_folded():
    rows, labels = draw(3, 0, 2.0, 1.0)
    space = make("standard", rows, labels)
    model, params = trained("mlp", 3, 0)
    before, after = (
        named_tensors(model, v) for v in (params, fold(model, params, space))
    )
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == ["hidden.weight", "hidden.bias"]


def test_what_is_given_stays_and_raw_gives_it_back():
    rows, labels = draw(3, 0, 2.0, 1.0)
    model, params = trained("linear", 3, 0)
    kept = params.clone()
    for turn in (fold, unfold):
        turn(model, params, make("standard", rows, labels))
        assert torch.equal(params, kept)
        assert turn(model, params, Space.raw(3)) is params


def test_a_model_without_a_linear_first_layer_is_refused():
    model = build_model(3, 2, ModelSettings(closed_form="mixture"))
    space = Space.standard(Totals.of_rows(torch.eye(3)))
    for turn in (fold, unfold):
        with pytest.raises(ConfigError, match="MixtureHead"):
            turn(model, to_vector(model), space)
