"""Choosing a head in closed form by hit counts, through the course.

Tests of exchanges/closed_form/solver.py, too.
"""

import math
from dataclasses import replace
from types import MappingProxyType

import pytest
import torch
from by_bytes import CLASSES, DIM, make_rows
from carrier import Carrier, garbage, late
from chosen import chosen_federation

from federatedscope_ggeur import FederatedClassifier
from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges.closed_form import exchange
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
    best_finalist,
    calibrations,
    choose_by_hits,
    choose_by_losses,
    cost_of_withheld,
)
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormClient,
)
from federatedscope_ggeur.federation.exchanges.closed_form.messages import (
    FLOORS,
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import CLOSED_FORMS, closed_forms
from federatedscope_ggeur.models.closed_forms.base import SHRINKAGES


def stats_of(seed):
    return Statistics.from_embeddings(*make_rows(60, seed), CLASSES)


def components_of(carried):
    return carried.coordinator.find(exchange.ClosedFormExchange).solver.components()


def hits_by_hand(carried, form):
    """Over all clients, straight from their rows; those of withheld classes are out."""
    hits, rows = 0, 0
    parts = components_of(carried)
    scorer = form.left_out(parts)
    for k, client in carried.federation.clients.items():
        counts = torch.bincount(client.labels, minlength=CLASSES)
        inside = (counts >= client.settings.min_samples)[client.labels]
        domain = parts.domain_names.index(client.domain)
        x, y = client.features[inside], client.labels[inside]
        held = closed_forms.ScoredRows(x, y, k, domain, inside[inside])
        hits, rows = hits + closed_forms.left_out_hits(scorer, held), rows + len(held)
    return hits.tolist(), rows


@pytest.mark.parametrize(
    ("kind", "min_samples"), [("lda", 1), ("mixture", 6), ("ridge", 6)]
)
def test_the_candidate_with_the_most_hits_is_taken(kind, min_samples):
    carried = Carrier(chosen_federation(kind, min_samples))
    details = carried.round0().closed_form.details
    form = CLOSED_FORMS[kind]()
    hits, rows = hits_by_hand(carried, form)
    assert [c["hits"] for c in details["candidates"]] == hits
    assert [c["accuracy"] for c in details["candidates"]] == [h / rows for h in hits]
    assert details["scored_rows"] == rows == sum(carried.server.merged.rows.values())
    chosen = form.candidates()[hits.index(max(hits))]
    for name, value in chosen.described().items():
        if name in details:
            assert details[name] == value
    assert details["chosen_by"] == "leave_one_out"
    solved = chosen.solve(carried.server.merged.statistics, components_of(carried))
    model = carried.server.model.at(carried.server.params)
    features, _ = make_rows(10, 77)
    assert torch.equal(model(features), solved.model(features))


def test_its_bytes_count_among_those_of_the_head_and_it_is_scored_by_client():
    carried = Carrier(chosen_federation("ridge"))
    record = carried.round0()
    asked = ("hit_counts", "evaluate")
    assert record.closed_form.bytes_down == carried.bytes_down(*asked)
    assert record.closed_form.bytes_up == carried.bytes_up(*asked)
    assert carried.bytes_up("hit_counts") > 0
    each = record.closed_form.client_accuracy
    assert {f"domain {k}": share for k, share in each.items()} == (
        record.closed_form.accuracy
    )


@pytest.mark.parametrize("fault", [garbage, late])
def test_an_answer_that_cannot_be_used_does_not_count(fault):
    carried = Carrier(chosen_federation("lda"), quorum=3)
    carried.faults["hit_counts", 0, 2] = fault
    details = carried.round0().closed_form.details
    assert details["scored_rows"] == 90 - 30


def test_without_any_rows_what_stands_for_it_is_taken():
    form = CLOSED_FORMS["lda"]()
    for counts in ([], [HitCounts(1, 0, torch.zeros(7, dtype=torch.int64), 0, 0)]):
        chosen, details, *_ = choose_by_hits(form, counts, 0.0)
        assert chosen.shrinkage == 0.3
        assert details["chosen_by"] == "default"
        assert details["scored_rows"] == 0


def test_rows_for_validation_count_too_and_are_in_nothing():
    carried = Carrier(chosen_federation("lda"))
    extra = Embeddings(*make_rows(12, 99), "domain 2")
    rows = {"test": extra.select([]), "val": extra}
    carried.handlers[2] = carried.federation.new_handler(2, rows)
    details = carried.round0().closed_form.details
    assert details["scored_rows"] == 90 + 12
    form = CLOSED_FORMS["lda"]()
    hits, _ = hits_by_hand(carried, form)
    solved = [
        f.solve(carried.server.merged.statistics).model for f in form.candidates()
    ]
    more = [
        int((m(extra.features).argmax(dim=1) == extra.labels).sum()) for m in solved
    ]
    found = [c["hits"] for c in details["candidates"]]
    assert found == [h + m for h, m in zip(hits, more)]


def test_a_client_answers_for_one_set_of_components():
    carried = Carrier(chosen_federation("lda"))
    carried.round0()
    handler, parts = carried.handlers[1], components_of(carried)
    asked = LeaveOneOut(parts.merged("class")).to_bytes()
    again = handler.answer(exchange.LEAVE_ONE_OUT, (asked,))
    assert again == handler.answer(exchange.LEAVE_ONE_OUT, (asked,))
    other = LeaveOneOut(replace(parts.merged("class"), scatter=2 * parts.scatter))
    with pytest.raises(MessageError, match="asked for before, with other components"):
        handler.answer(exchange.LEAVE_ONE_OUT, (other.to_bytes(),))


def test_a_domain_that_is_not_the_clients_is_refused():
    carried = Carrier(chosen_federation("lda"))
    carried.round0()
    parts = components_of(carried)
    foreign = replace(parts.merged("class"), domain_names=("elsewhere",))
    fresh = ClosedFormClient(carried.federation.clients[2], {})
    with pytest.raises(MessageError, match="'domain 2' is missing in"):
        fresh.hit_counts(LeaveOneOut(foreign))


def confounded(**options):
    """Each class in one domain, but for a few rows."""
    data = {}
    for k in (1, 2, 3, 4):
        features, labels = make_rows(40, k)
        labels = torch.where(
            torch.arange(40) < 34, torch.full_like(labels, k - 1), labels
        )
        shift = torch.zeros(DIM)
        shift[k - 1] = 30.0
        data[k] = (f"domain {k}", features + shift, labels)
    return chosen_federation(data=data, **options)


@pytest.mark.parametrize("kind", ["lda", "mixture", "ridge", "auto"])
def test_confounded_labels_and_domains_are_said_and_nobody_is_asked(kind, caplog):
    carried = Carrier(confounded(kind=kind))
    details = carried.round0().closed_form.details
    assert carried.asked("hit_counts") == []
    assert details["confounded_share"] > 0.5
    assert details["chosen_by"] == "default"
    assert "labels and domains are confounded" in details["note"]
    assert details["note"] in caplog.text
    expected = (
        CLOSED_FORMS[kind]()
        .untuned()
        .solve(carried.server.merged.statistics, components_of(carried))
    )
    assert {k: details[k] for k in expected.report if k != "shrinkage_rule"} == {
        k: v for k, v in expected.report.items() if k != "shrinkage_rule"
    }


@pytest.mark.parametrize(
    ("kind", "is_said"),
    [
        ("ncm", True),
        pytest.param("lda", False, marks=pytest.mark.slow),
        pytest.param("auto", False, marks=pytest.mark.slow),
    ],
)
def test_a_dimension_that_hides_the_others_is_said(kind, is_said):
    rows = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    notes = []
    for unit in (1.0, 1e6):
        scaled = torch.cat([unit * rows[:, :1], rows[:, 1:]], dim=1)
        made = FederatedClassifier(kind).fit(scaled, torch.arange(80) % 4, clients=4)
        notes.append(made.results_.round0.closed_form.details.get("note", ""))
    said = ["99% of the variance lies in 1 of 5 dim" in note for note in notes]
    assert said == [False, is_said]


class TestLosses:
    """Three finalists of `auto`; each has three temperatures, or four rows of nats."""

    form = CLOSED_FORMS["auto"]().for_components(
        replace(
            closed_forms.Components.of_classes(stats_of(1)),
            clients=torch.arange(CLASSES) % 2,
        )
    )

    def query(self, choice):
        by = ((0.5, 1.0, 2.0),) * len(choice.finalists)
        return LossQuery(choice.finalists, by)

    def choice(self, *hits):
        """The choice by hits; each kind has its hits at one strength."""
        places = [SHRINKAGES.index(0.3) + 12 * kind for kind in range(4)]
        counted = torch.zeros(48, dtype=torch.int64)
        counted[places] = torch.tensor(hits)
        return choose_by_hits(self.form, [HitCounts(1, 100, counted, 0, 100)], 0.0)

    def by_losses(self, choice, *least, withheld=MappingProxyType({})):
        """The kind that is taken, if each finalist is best at 1 with this loss."""
        rows = torch.tensor(least)[:, None] + torch.tensor([0.5, 0.0, 0.5])
        answer = LogLosses(1, 100, (6400 * rows).long())
        candidates, query = self.form.candidates(), self.query(choice)
        return choose_by_losses(candidates, choice, [answer], query, withheld)[0]

    def test_the_least_log_loss_decides_the_kind(self):
        choice = self.choice(90, 88, 99, 98)
        for best in range(4):
            losses = [0.4] * 4
            losses[best] = 0.3
            taken = self.by_losses(choice, *losses)
            assert taken.candidate == choice.finalists[best]
            standardized, mixed = bool(best % 2), best > 1
            assert taken.form.choice.standardize == standardized
            assert taken.form.choice.name == ("mixture" if mixed else "lda")
            told = taken.details["candidates"][taken.candidate]
            assert told["left_out_loss"] == pytest.approx(0.3)
        equal = self.by_losses(choice, 0.4, 0.4, 0.4, 0.4)
        assert equal.candidate == choice.finalists[0]

    def test_a_kind_that_is_a_standard_error_of_hits_behind_is_not_taken(self):
        """Of 100 rows it is three rows at 90%."""
        for behind, kind in ((87, False), (86, True)):
            taken = self.by_losses(self.choice(behind, 90, 0, 0), 0.3, 0.5)
            assert taken.form.choice.standardize == kind

    def test_a_mixture_that_promises_too_much_puts_no_other_kind_behind(self):
        choice = self.choice(80, 80, 99, 0)
        assert self.by_losses(choice, 0.3, 0.4, 0.5).form.choice.name == "lda"

    def test_a_mixture_of_clients_needs_more_hits_by_a_standard_error(self):
        """Of 100 rows it is three rows at 90%."""
        assert len(self.choice(90, 80, 93, 94).finalists) == 3
        assert len(self.choice(90, 80, 93, 93).finalists) == 2

    def test_withheld_rows_count_as_sure_mistakes_of_it(self):
        choice = self.choice(90, 80, 99, 80)
        for withheld, kind in ((0.05, "mixture"), (0.15, "lda")):
            costs = {"client": withheld, "domain": 9.0}
            taken = self.by_losses(choice, 0.4, 0.5, 0.3, withheld=costs)
            assert taken.form.choice.name == kind
        hits = torch.zeros(48, dtype=torch.int64)
        counts = [HitCounts(1, 110, hits, 10, 90), HitCounts(2, 50, hits, 0, 10)]
        for among, rows in (([1], 10), ([1, 2], 50), ([], 0)):
            cost = cost_of_withheld(counts, {1: 90, 2: 10}, 4, among)
            assert cost == pytest.approx(rows / 100 * math.log(4 / 0.001))

    def test_without_losses_hits_decide(self):
        choice = self.choice(90, 80, 99, 80)
        nothing = LogLosses(1, 0, torch.zeros(3, 3, dtype=torch.int64))
        candidates, query = self.form.candidates(), self.query(choice)
        found = choose_by_losses(candidates, choice, [nothing], query, {})
        assert found[0] == choice
        assert found[1].value == 1.0
        assert choice.form.choice.name == "mixture"

    def test_training_starts_at_the_best_head_that_can_be_trained(self):
        choice = self.by_losses(self.choice(90, 88, 99, 98), 0.5, 0.4, 0.3, 0.3)
        candidates = self.form.candidates()
        start = best_finalist(candidates, choice, lambda one: one.can_start)
        wanted = {"closed_form": "lda", "standardize": True, "shrinkage": 0.3}
        assert start.choice.described() == wanted


@pytest.mark.parametrize(("gain", "floor"), [(0.02, 0.0), (0.03, 0.05)])
def test_a_floor_has_to_gain_what_one_more_number_costs(gain, floor):
    """Of 100 rows it is half of log 100 nats in all. Each candidate has its own."""
    floors, by = FLOORS, (0.5, 1.0, 2.0)
    rows = torch.full((2, len(floors)), 0.4)
    rows[1, floors.index(0.05)] -= gain
    losses = rows.flatten()[:, None] + torch.tensor([0.5, 0.0, 0.5])
    plain, raised = calibrations(losses, (by, by), floors, 100)
    assert plain[:3] == (1.0, 0.0, pytest.approx(0.4))
    assert raised[:2] == (1.0, floor)
    costs = floor and math.log(100) / 2 / 100
    assert raised.cost == pytest.approx(raised.loss + costs)


@pytest.mark.parametrize("compares", [True, False])
def test_components_are_kept_only_where_something_is_chosen(compares):
    solver = exchange.HeadSolver(CLOSED_FORMS["mixture"](), compares, "ab", seed=0)
    assert solver.components() is None
    form = StatisticsForm("class", exact=True)
    for number, domain in enumerate("aba", 1):
        held = Statistics.from_embeddings(*make_rows(30, number), CLASSES)
        solver.add(StatisticsUpload(number, domain, held, form))
    held = solver.components()
    assert held.counts.sum() == 90 if compares else held is None
