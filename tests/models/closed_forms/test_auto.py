"""`auto`: its candidates, the one it takes, the model of it."""

import pytest
import torch
from closed_form_federations import components_of, make_federation
from solving import SHAPES, stats

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    LinearHead,
    MixtureHead,
    ModelSettings,
    build_closed_form,
    build_model,
    load_vector,
    to_vector,
)
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.models.closed_forms.choices import SHRINKAGES, STRENGTHS
from federatedscope_ggeur.models.closed_forms.components import Rows

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
    assert found == {
        "lda": list(SHRINKAGES),
        "lda z": list(SHRINKAGES),
        "mixture": list(SHRINKAGES),
        "mixture z": list(SHRINKAGES),
        "ridge": list(STRENGTHS),
        "ridge z": list(STRENGTHS),
        "ncm": [None],
        "fedcof": [10.0, 1.0, 0.1, 0.01, 0.001],
    }
    order = ["lda", "lda z", "mixture", "mixture z", "ridge", "ridge z", "ncm"]
    assert list(found) == [*order, "fedcof"]
    sections = {
        name: {k.name: k.default for k in form.SETTINGS}
        for name, form in CLOSED_FORMS.items()
    }
    sections["lda"]["shrinkage"], sections["ridge"]["strength"] = 0.2, 5.0
    chosen = by_kind(build_closed_form("auto", sections))
    assert (chosen["lda"], chosen["ridge"]) == ([0.2], [5.0])


def test_a_start_of_training_is_linear():
    start = Automatic().as_start()
    assert "mixture" not in by_kind(start)
    solved = start.candidates()[0].solve(stats(*DATA[:2], CLASSES))
    assert isinstance(solved.model, LinearHead)
    built = build_model(6, CLASSES, ModelSettings(closed_form="auto", starts=True))
    assert isinstance(built, LinearHead)


@pytest.mark.parametrize("number", [0, 3, 14, 30, 45, 60, 70, 78, 80])
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
    assert isinstance(solved.model, MixtureHead)
    built = build_model(6, CLASSES, ModelSettings(closed_form="auto"))
    load_vector(built, to_vector(solved.model))
    assert torch.equal(built(points), solved.model(points))


def test_scores_are_those_of_the_kinds_in_order():
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    here = clients == 2
    held = Rows(
        torch.from_numpy(rows[here]),
        torch.from_numpy(labels[here]),
        2,
        0,
        torch.ones(here.sum(), dtype=torch.bool),
    )
    form = Automatic()
    found = form.left_out(parts)(held)
    wanted = [s for kind in form.kinds() for s in kind.leave_out(parts)(held)]
    assert len(found) == len(form.candidates()) == len(wanted)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted))


class TestPicking:
    """Of 1000 rows, where a standard error at 90% is 9.5 rows."""

    form = Automatic()

    def hits(self, **by_kind):
        counts = []
        for kind in self.form.kinds():
            own = [0] * len(kind.candidates())
            name = f"{kind.name}_z" if kind.standardize else kind.name
            for place, count in by_kind.get(name, {}).items():
                own[place] = count
            counts += own
        return torch.tensor(counts)

    def picked(self, **by_kind):
        chosen = self.form.candidates()[self.form.pick(self.hits(**by_kind), 1000)]
        return chosen.choice.described()

    def test_the_best_strength_of_a_kind(self):
        assert self.picked(lda={1: 900, 4: 905}) == {
            "closed_form": "lda",
            "shrinkage": SHRINKAGES[4],
        }

    def test_of_equal_ones_the_most_regular(self):
        assert self.picked(ridge={2: 900, 5: 900})["strength"] == STRENGTHS[2]

    def test_another_kind_by_more_than_a_standard_error(self):
        better = self.picked(lda={3: 890}, fedcof={1: 900})
        assert better == {"closed_form": "fedcof", "strength": 1.0}
        alike = self.picked(lda={3: 892}, fedcof={1: 900})
        assert alike["closed_form"] == "lda"

    def test_the_first_kind_that_is_good_enough(self):
        found = self.picked(lda={0: 800}, mixture={0: 893}, ncm={0: 900})
        assert found["closed_form"] == "mixture"

    def test_standardized_rows_where_they_are_better_by_a_standard_error(self):
        better = self.picked(lda={0: 800}, lda_z={3: 900})
        assert better == {"closed_form": "lda", "standardize": True, "shrinkage": 0.3}


def test_compressed_statistics_take_no_small_strength_and_are_not_standardized():
    form = Automatic()
    form.compressed = True
    found = by_kind(form)
    assert not [name for name in found if name.endswith(" z")]
    assert min(s for own in found.values() for s in own if s is not None) == 0.01


def test_a_target_that_is_set_is_the_only_one():
    form = Automatic(lda=CLOSED_FORMS["lda"](standardize=True))
    assert {"lda z", "ridge", "ridge z"} <= by_kind(form).keys()
    assert "lda" not in by_kind(form)


def test_without_rows_left_out_it_is_lda():
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    statistics = stats(rows, labels, CLASSES)
    lda = CLOSED_FORMS["lda"]().untuned()
    assert lda.shrinkage == 0.3
    wanted = lda.solve(statistics).model.classifier.weight
    for form in (Automatic(), Automatic().untuned()):
        found = form.solve(statistics, parts)
        assert torch.equal(found.model.weight, wanted)
        assert found.report["shrinkage"] == 0.3


def test_ledoit_and_wolfs_rule_is_no_candidate():
    form = Automatic(lda=CLOSED_FORMS["lda"](rule="ledoit_wolf"))
    assert by_kind(form)["lda"] == list(SHRINKAGES)


def test_an_alpha_is_refused():
    with pytest.raises(ConfigError, match=r"ggeur\.ridge\.alpha: must be -1 with"):
        Automatic(ridge=CLOSED_FORMS["ridge"](alpha=1.0))
