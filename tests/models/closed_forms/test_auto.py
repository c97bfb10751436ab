"""`auto`: its candidates, the one it takes, the model of it."""

from dataclasses import replace

import pytest
import torch
from closed_form_federations import components_of, make_federation, scored
from solving import SHAPES, stats

from federatedscope_ggeur import models
from federatedscope_ggeur.federation.exchanges.closed_form.messages import FINALISTS
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.models.closed_forms.base import SHRINKAGES

CLASSES = 4
DATA = make_federation(SHAPES["many rows"])


def by_kind(form):
    found = {}
    for candidate in form.candidates():
        choice = candidate.choice
        strength = choice.chosen if choice.TUNED else None
        name = f"{choice.name} z" if choice.standardize else choice.name
        found.setdefault(name, []).append(strength)
    return found


def test_candidates_are_all_kinds_with_their_open_strengths():
    found = by_kind(Automatic())
    order = ["lda", "lda z", "mixture", "mixture z"]
    assert found == {name: list(SHRINKAGES) for name in order}
    assert list(found) == order
    sections = {
        name: {k.name: k.default for k in form.SETTINGS}
        for name, form in models.CLOSED_FORMS.items()
    }
    sections["lda"]["shrinkage"] = 0.2
    chosen = by_kind(models.build_closed_form("auto", sections))
    assert (chosen["lda"], chosen["mixture"]) == ([0.2], list(SHRINKAGES))


def test_scatters_of_classes_add_kinds():
    kinds = Automatic().for_components(components_of(*DATA, CLASSES)).kinds()
    found = [(kind.name, kind.grain) for kind in kinds if not kind.standardize]
    assert found[2:] == [("rda", "class"), ("rda", "domain")]
    assert len(kinds) == FINALISTS


def test_the_best_strength_of_each_kind_is_a_finalist():
    each = len(SHRINKAGES)
    best = [0, each + 2, 2 * each + 1, 4 * each - 1]
    hits = torch.zeros(4 * each)
    hits[best] = 9.0
    assert Automatic().finalists(hits, 10) == best


@pytest.mark.parametrize(("ahead", "components"), [(1, "class"), (0, "domain")])
def test_hits_choose_the_components_of_rda(ahead, components):
    """The mixture is in it if it costs no hits."""
    form = Automatic().for_components(components_of(*DATA, CLASSES))
    candidates = [one.choice for one in form.candidates()]
    hits = torch.full((len(candidates),), 5.0)
    for place, one in enumerate(candidates):
        if one.name == "rda" and one.grain == "class":
            hits[place] += ahead
    places = form.finalists(hits, 10)
    found = [candidates[place] for place in places]
    assert [one.components for one in found if one.name == "rda"] == [components]
    assert [one.name for one in found] == ["lda"] * 2 + ["mixture"] * 2 + ["rda"]


def test_the_strongest_shrinkage_of_rda_wins_a_tie():
    form = models.CLOSED_FORMS["rda"]()
    hits = torch.tensor([0.0, 0, 0, 7, 7] + [0] * 7)
    (place,) = form.finalists(hits, 9)
    best = form.candidates()[place]
    assert (best.shrinkage, best.common) == (0.3, 9)


@pytest.mark.parametrize(
    ("domains", "clients", "groups"),
    [
        ((0, 0, 1, 1), (1, 2, 3, 4), "domain"),
        ((0, 0, 0, 0), (1, 2, 1, 2), "client"),
        ((0, 0, 0, 0), (1, 1, 1, 1), None),
    ],
)
def test_the_mixture_is_of_domains_or_else_of_clients(domains, clients, groups):
    """With one domain and one client it would be LDA."""
    parts = components_of(*DATA, CLASSES)
    parts = replace(parts.merged("class"), domains=torch.tensor(domains))
    parts = replace(parts, clients=torch.tensor(clients))
    form = Automatic().for_components(parts)
    found = {kind.components for kind in form.kinds() if kind.name == "mixture"}
    assert found == ({groups} if groups else set())
    lacking = {(one.choice.name, one.lacks_withheld) for one in form.candidates()}
    by = {("mixture", groups), ("rda", groups)} if groups else set()
    assert lacking == {("lda", ""), ("rda", ""), *by}
    if len(set(domains)) > 1:
        asked = models.CLOSED_FORMS["mixture"](components="client")
        kinds = Automatic(mixture=asked).for_components(parts).kinds()
        assert {kind.grain for kind in kinds} == {"class", "client"}


def test_a_start_of_training_is_linear():
    start = Automatic().as_start()
    assert "mixture" not in by_kind(start)
    solved = start.candidates()[0].solve(stats(*DATA[:2], CLASSES))
    assert isinstance(solved.model, models.LinearHead)
    built = models.build_model(
        6, CLASSES, models.ModelSettings(closed_form="auto", starts=True)
    )
    assert isinstance(built, models.LinearHead)


@pytest.mark.parametrize("number", [0, 3, 14, 30, 45])
def test_a_candidate_is_the_head_of_its_kind(number):
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    statistics = stats(rows, labels, CLASSES)
    candidate = Automatic().candidates()[number]
    solved = candidate.solve(statistics, parts)
    own = candidate.choice.solve(statistics, parts)
    points = torch.from_numpy(rows).float()
    torch.testing.assert_close(solved.model(points), own.model(points))
    assert solved.report["closed_form"] == candidate.choice.name
    assert isinstance(solved.model, models.MixtureHead)
    built = models.build_model(6, CLASSES, models.ModelSettings(closed_form="auto"))
    models.load_vector(built, models.to_vector(solved.model))
    assert torch.equal(built(points), solved.model(points))


def test_scores_are_those_of_the_kinds_in_order():
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    held, form = scored(rows[clients == 2], labels[clients == 2], 2), Automatic()
    found = form.left_out(parts)(held)
    wanted = [s for kind in form.kinds() for s in kind.leave_out(parts)(held)]
    assert len(found) == len(form.candidates()) == len(wanted)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted))


def test_each_kind_s_scatter_is_decomposed_once(monkeypatch):
    """Whatever leaves rows out: hits of all candidates, and losses of each finalist."""
    decompose, calls = torch.linalg.eigh, []
    monkeypatch.setattr(
        torch.linalg, "eigh", lambda matrix: calls.append(0) or decompose(matrix)
    )
    parts, form = components_of(*DATA, CLASSES), Automatic()
    for one in (form, *form.candidates()):
        one.leave_out(parts)
    assert len(calls) == len(form.kinds()) == 4


def test_compressed_statistics_take_no_small_strength_and_are_not_standardized():
    form = Automatic()
    form.statistics = "compressed"
    found = by_kind(form)
    assert not [name for name in found if name.endswith(" z")]
    assert min(s for own in found.values() for s in own if s is not None) == 0.01


def test_a_target_that_is_set_is_the_only_one():
    form = Automatic(lda=models.CLOSED_FORMS["lda"](standardize=True))
    assert list(by_kind(form)) == ["lda z", "mixture", "mixture z"]


def test_without_rows_left_out_it_is_lda():
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    statistics = stats(rows, labels, CLASSES)
    lda = models.CLOSED_FORMS["lda"]().untuned()
    assert lda.shrinkage == 0.3
    wanted = lda.solve(statistics).model.classifier.weight
    for form in (Automatic(), Automatic().untuned()):
        found = form.solve(statistics, parts)
        assert torch.equal(found.model.weight, wanted)
        assert found.report["shrinkage"] == 0.3
