"""Left-out rows with weights: a row is left out with all its weight."""

import left_out_oracle as oracle
import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows
from federatedscope_ggeur.models.closed_forms.left_out import left_out_hits

CLASSES = 3
HEADS = {
    "lda": lambda rows, labels, x, value: oracle.mixture(
        rows, labels, 0 * labels, x, CLASSES, value
    ),
    "ncm": lambda rows, labels, x, _: oracle.mixture(
        rows, labels, 0 * labels, x, CLASSES, None, priors=False
    ),
    "ridge": lambda rows, labels, x, value: oracle.ridge(
        rows, labels, x, CLASSES, value
    ),
}


@st.composite
def weighted(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dim = draw(st.sampled_from([4, 9, 20])), draw(st.sampled_from([1, 3, 12]))
    labels = rng.integers(CLASSES, size=n)
    rows = rng.normal(size=(CLASSES, dim))[labels] + rng.normal(size=(n, dim))
    return rows, labels, rng.integers(1, 5, size=n), rng.integers(1, 3, size=n)


def parts_of(rows, labels, weights, clients):
    parts = []
    for k in sorted(set(clients.tolist())):
        mine = clients == k
        held = (torch.from_numpy(part[mine]) for part in (rows, labels))
        of_mine = torch.from_numpy(weights[mine]).double()
        held = Statistics.from_embeddings(*held, CLASSES, of_mine)
        parts.append(Components.of_client(held, k, "a", ("a",)))
    return Components.joined(parts)


def rows_of(rows, labels, weights):
    inside = torch.ones(len(rows), dtype=torch.bool)
    held = torch.from_numpy(rows), torch.from_numpy(labels)
    return ScoredRows(*held, 1, 0, inside, torch.from_numpy(weights).double())


@pytest.mark.parametrize("kind", HEADS)
@examples(15)
@given(data=weighted())
def test_equals_refitting_without_all_copies_of_the_row(kind, data):
    rows, labels, times, _ = data
    form = CLOSED_FORMS[kind]()
    score = form.leave_out(parts_of(*data).merged("class"))
    values = [f.chosen if f.TUNED else None for f in form.candidates()]
    held = rows_of(rows, labels, times)
    for value, found in zip(values, score(held)):
        for i, x in enumerate(rows):
            left = times.copy()
            left[i] = 0
            others = rows.repeat(left, 0), labels.repeat(left)
            wanted = HEADS[kind](*others, x, value)
            seen = np.isfinite(wanted)
            assert (np.isfinite(found[i].numpy()) == seen).all()
            apart = found[i].numpy()[seen] - wanted[seen]
            size = max(1, abs(wanted[seen]).max())
            assert np.ptp(apart) < max(1e-8, 1e-13 / (value or 1)) * size
    hits = left_out_hits(score, held)
    for place, found in enumerate(score(held)):
        right = (found.argmax(1).numpy() == labels) & np.isfinite(found.amax(1).numpy())
        assert hits[place] == times[right].sum()
    assert hits.dtype == torch.float64
    assert (left_out_hits(score, held.part(slice(0))) == 0).all()


def test_ridge_does_not_depend_on_the_scale_of_weights():
    rng = np.random.default_rng(1)
    rows, labels, ones = rng.normal(size=(40, 6)), np.arange(40) % 3, np.ones(40, int)
    weights, form = rng.uniform(0.1, 3, size=40), CLOSED_FORMS["ridge"]()

    def scores(weights):
        parts = parts_of(rows, labels, weights, ones).merged("class")
        return torch.stack(form.leave_out(parts)(rows_of(rows, labels, weights)))

    np.testing.assert_allclose(
        scores(weights), scores(weights / 7), rtol=1e-9, atol=1e-9
    )
