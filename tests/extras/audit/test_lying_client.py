"""A11: one client that lies in the secure sums has the others' rows."""

import pytest
import torch
from planted import CLOCK, gaussian, only, transcript, truth_of

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.base import Claim, Lied
from federatedscope_ggeur.extras.audit.liar import a11, a_claim, lying, spoken_of
from federatedscope_ggeur.extras.audit.transcript import recorded
from federatedscope_ggeur.extras.audit.transcript import truth_of as rows_of
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.extras.secure_sums.vectors import (
    ClientRows,
    Named,
)

SUMS = ["ggeur.privacy.secure_sums", "statistics", "ggeur.privacy.secure_sums_radius"]
SUMS += [40, "ggeur.privacy.secure_sums_max_rows", 1048576]
SUMS += ["ggeur.privacy.secure_sums_fraction_bits", 30]
SKEWED = ["data.splitter_args", "[{'alpha': 0.3}]", "federate.client_num", 3]
OTHERS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]
HEADS = {
    "ggeur": OTHERS,
    "lda": ["ggeur.closed_form", "lda"],
    "lda, shrinkage": ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3],
    "ridge": ["ggeur.closed_form", "ridge", "ggeur.ridge.strength", 0.43],
    "ncm": ["ggeur.closed_form", "ncm"],
}


def sums_of(config):
    return Run(config(*SUMS, *OTHERS)).settings.role.of(SumSettings)


@pytest.mark.parametrize("name", HEADS)
def test_it_has_the_means_of_few_rows_of_others(config, name):
    run = Run(config(*SUMS, *SKEWED, *HEADS[name]))
    found = only(a11(recorded(run), rows_of(run), CLOCK))
    assert (found.adversary, found.level) == ("lying", "rows")
    assert (found.value, found.tried, found.passed) == (8.0, 8, False)


def test_by_ggeur_the_row_itself_comes_down(config):
    """Of class 3 client 1 has five rows and all others together one: kept back where
    everyone is honest, and client 1's prototype where it lies."""
    run = Run(config(*SUMS, *SKEWED, *OTHERS))
    seen, truth = recorded(run), rows_of(run)
    assert 3 not in seen.prototypes[1].labels
    lied = seen.lied
    assert lied.claim.liar == 1
    got = lied.seen.prototypes[1]
    at = got.labels.tolist().index(3)
    rows = torch.cat([truth.rows(k, 3) for k in truth.clients if k != 1])
    assert len(rows) == 1
    mean = got.prototypes[at].double() * got.counts[at]
    assert float(torch.cosine_similarity(mean, rows[0], dim=0)) > 0.9999


def test_what_it_adds_is_what_such_rows_would(config):
    """Its sums beside those of a client that has all the rows it claims."""
    settings = sums_of(config)
    dim, classes, radius = settings.dim, settings.num_classes, settings.radius
    x, y = gaussian(0, 30, dim), torch.arange(30) % classes
    rows = torch.zeros(classes, dtype=torch.int64)
    rows[2], rows[5] = 5, 4 * dim
    claim = Claim(1, rows, 5, 4 * radius**2)
    liar = lying(1, x, y, settings, claim)._rows
    axes = radius * torch.eye(dim).repeat(2, 1)
    more = torch.cat([torch.zeros(5, dim), axes, -axes])
    labels = torch.tensor([2, 5]).repeat_interleave(rows[rows > 0])
    having = ClientRows(torch.cat([x, more]), torch.cat([y, labels]), settings)
    named = Named((1, 2, 5), (20, 9, 400))
    origin = gaussian(1, 1, dim)[0]
    assert (liar.counts() == having.counts()).all()
    assert (liar.means(named)[:-4] == having.means(named)[:-4]).all()
    assert not liar.means(named)[-4:].any()
    apart = (liar.pooled(named, origin) - having.pooled(named, origin)).view("int64")
    assert abs(apart).max() < 2**settings.fraction_bits * 1e-6


def test_the_liar_is_who_has_most_to_gain_and_keeps_within_bounds(config):
    settings = sums_of(config)
    clients = {}
    for k, held in ((1, [9, 9, 0, 9]), (2, [1, 9, 0, 9]), (3, [0, 1, 9, 9])):
        y = torch.repeat_interleave(torch.arange(4), torch.tensor(held))
        clients[k] = gaussian(k, len(y), settings.dim), y
    truth = truth_of(clients)
    claim = a_claim(truth, settings)
    assert claim.liar == 1
    assert claim.rows[0] == settings.min_samples
    assert claim.rows[[1, 2]].tolist() == [0, 0]
    assert claim.known == 3
    assert int(claim.rows.sum() + truth.totals.sum()) <= settings.max_rows
    assert 0 not in clients[1][1][spoken_of(claim, clients[1][1])]


def test_where_the_others_hold_enough_of_all_there_is_nothing(config):
    settings = sums_of(config)
    y = torch.arange(4).repeat(9)
    truth = truth_of({k: (gaussian(k, 36, settings.dim), y) for k in (1, 2, 3)})
    assert a_claim(truth, settings) is None


def test_a_run_that_is_refused_gives_nothing_away(config):
    run = Run(config(*SUMS, *SKEWED, *OTHERS))
    seen = recorded(run)
    refused = transcript([*SUMS, *OTHERS], lied=Lied(seen.lied.claim, None, "too long"))
    found = only(a11(refused, rows_of(run), CLOCK))
    assert (found.value, found.passed) == (0.0, True)
    assert "too long" in found.note


def test_step_1_alone_sends_no_means(config):
    settings = ["ggeur.geometry", "pooled", "ggeur.steps", [1]]
    run = Run(config(*SUMS, *SKEWED, *settings))
    found = only(a11(recorded(run), rows_of(run), CLOCK))
    assert (found.passed, found.tried) == (None, None)


def test_without_sums_it_is_not_tried(config):
    run = Run(config())
    found = only(a11(recorded(run), rows_of(run), CLOCK))
    assert (found.passed, found.tried) == (None, 0)
    assert found.note.startswith("not tried")
