"""Which of two heads a run leaves: what is trained, and what the records say."""

from dataclasses import replace

import pytest
import torch

from federatedscope_ggeur.federation.exchanges.closed_form.choice import Choice
from federatedscope_ggeur.federation.exchanges.closed_form.keeping import (
    APART,
    NO_GAIN,
    KnownRows,
    Training,
    kept_head,
    plan_training,
    share_to_hold_out,
    unmeasured_share,
)
from federatedscope_ggeur.federation.exchanges.closed_form.messages import HitCounts
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import Kept, Round0, RoundRecord
from federatedscope_ggeur.reporting.lines import kept_line


@pytest.mark.parametrize(
    ("averages", "hidden", "sent", "unsent", "told", "averaged", "absent"),
    [
        (True, 0, 97, 0, 0, True, 0),
        (True, 0, 99, 0, 0, False, 0),
        (True, 0, 90, 1, 5, False, 5),
        # Each client has too few rows of the class to tell.
        (True, 0, 90, 1, 0, False, 10),
        (False, 0, 90, 1, 0, False, 10),
        (False, 0, 90, 0, 0, False, 0),
        # Nobody has rows of the class.
        (False, 0, 100, 1, 0, False, 0),
        # An MLP helps, however many rows are withheld, and also if it alone knows some.
        (True, 256, 100, 0, 0, True, 0),
        (True, 256, 90, 1, 5, True, 5),
    ],
)
def test_heads_are_averaged_if_an_mlp_or_many_rows_of_sent_classes_can_help(
    averages, hidden, sent, unsent, told, averaged, absent
):
    form = CLOSED_FORMS["ncm"]()
    counts = [HitCounts(1, 100, torch.zeros(1), 0, sent, told)]
    told, beside = KnownRows(counts, sent, unsent), Training(averages, hidden, 160)
    plan = plan_training(Choice(form, {}, form), [form], told, beside)
    assert plan.averages == averaged
    assert plan.details["absent_rows"] == absent
    assert bool(plan.ends) == (not averaged and not absent)


@pytest.mark.parametrize(
    ("clients", "rows", "validation", "share"),
    [
        (10, 1000, 0, 0.05),
        (10, 1000, 149, 0.05),
        (10, 1000, 150, 0),
        # At most 15% of the rows, if these are enough.
        (10, 100, 0, 0.15),
        (2, 34, 0, 0.15),
        (1, 34, 0, 0),
        # Each client holds out 5 rows or none.
        (100, 50, 0, 0.1),
        (125, 50, 0, 0),
        (10, 0, 0, 0),
    ],
)
def test_about_500_rows_are_held_out_unless_rows_are_few_or_nearly_all_right(
    clients, rows, validation, share
):
    first = HitCounts(1, rows + validation, torch.zeros(1), validation, rows)
    others = [HitCounts(2, rows, torch.zeros(1), 0, rows)] * (clients - 1)
    form, total = CLOSED_FORMS["ncm"](), clients * rows
    # Rows of classes that nobody sent count as wrong.
    some = total * 3 // 100
    for accuracy, absent, withheld, wanted in (
        (0.94, 0, 0, share), (0.95, 0, 0, 0.0), (0.97, some, 0, share),
        (0.98, some, 0, 0.0),
        # Where many rows are withheld, those that are left out tell too little.
        (0.95, 0, 0.2, 0.0), (0.95, 0, 0.21, share),
    ):  # fmt: skip
        scored = {"scored_rows": 100, "candidates": [{"accuracy": accuracy}]}
        choice = Choice(form, scored, form, (0,))
        counts = [replace(first, absent=absent), *others]
        told = KnownRows(counts, total - int(withheld * total))
        assert share_to_hold_out(choice, told, least=5) == wanted


@pytest.mark.parametrize(("others", "share"), [(12, 0.15), (13, 0.0)])
def test_clients_that_hold_rows_out_have_a_quarter_of_all_rows(others, share):
    """The two largest of 100 rows; the others have too few to hold 5 out."""
    form = CLOSED_FORMS["ncm"]()
    sizes = [100, 100, *[50] * others]
    counts = [HitCounts(k, n, torch.zeros(1), 0, n) for k, n in enumerate(sizes, 1)]
    scored = {"scored_rows": 100, "candidates": [{"accuracy": 0.5}]}
    choice = Choice(form, scored, form, (0,))
    assert share_to_hold_out(choice, KnownRows(counts, sum(sizes)), least=9) == share


@pytest.mark.parametrize(("sent", "share"), [(100, 0.5), (80, 0.5), (79, 0.25)])
def test_a_one_shot_head_that_saw_few_rows_has_a_smaller_share(sent, share):
    counts = [HitCounts(1, 100, torch.zeros(1), 0, sent)]
    assert unmeasured_share(KnownRows(counts, sent)) == share


@pytest.mark.parametrize("hidden", [0, 256])
@pytest.mark.parametrize(
    ("dim", "wrong", "sent", "validation", "averaged"),
    [(160, 3, 97, 0, False), (160, 4, 97, 0, True), (160, 0, 80, 0, False),
     (160, 0, 79, 0, True), (160, 0, 97, 1, True), (161, 4, 97, 0, False),
     (161, 5, 97, 0, True), (161, 0, 79, 0, True), (161, 0, 97, 1, True)],
)  # fmt: skip
def test_a_head_that_is_right_on_nearly_all_left_out_rows_is_kept(
    hidden, dim, wrong, sent, validation, averaged
):
    """Unless many rows are withheld, or validation rows decide.

    Of rows of many columns it may be wrong more often.
    """
    form = CLOSED_FORMS["ncm"]()
    counts = [HitCounts(1, 100 + validation, torch.zeros(1), validation, sent, 0)]
    candidates = [{"accuracy": 1 - n / sent} for n in (0, wrong, sent)]
    scored = {"scored_rows": sent, "candidates": candidates}
    before = Choice(form, scored, form, (0, 1))
    told, beside = KnownRows(counts, sent), Training(True, hidden, dim)
    plan = plan_training(before, [form] * 3, told, beside)
    assert plan.averages == averaged
    assert plan.ends == ("" if averaged else NO_GAIN)


@pytest.mark.parametrize(
    ("kinds", "averaged"), [((80, 90), False), ((80, 89), True), ((90, 80), True)]
)
def test_where_a_mixture_makes_at_most_half_of_the_mistakes_nothing_is_trained(
    kinds, averaged
):
    """Hits of 100 rows of lda, and of the mixture."""
    forms = CLOSED_FORMS["lda"](), CLOSED_FORMS["mixture"]()
    candidates = [{"accuracy": hits / 100} for hits in kinds]
    scored = {"scored_rows": 100, "candidates": candidates}
    before = Choice(forms[1], scored, forms[1], (0, 1))
    counts = [HitCounts(1, 100, torch.zeros(2), 0, 100)]
    told, beside = KnownRows(counts, 100), Training(True, 256, 160)
    plan = plan_training(before, forms, told, beside)
    assert plan.averages == averaged
    assert plan.ends == ("" if averaged else APART)


@pytest.mark.parametrize("hidden", [0, 256])
@pytest.mark.parametrize(("share", "trained"), [(0.25, False), (0.26, True)])
def test_left_out_rows_do_not_end_a_run_where_domains_are_confounded_in_part(
    hidden, share, trained
):
    """All of them are right."""
    form = CLOSED_FORMS["ncm"]()
    details = {"scored_rows": 100, "candidates": [{"accuracy": 1.0}]}
    before = Choice(form, {**details, "confounded_share": share}, form, (0,))
    told = KnownRows([HitCounts(1, 100, torch.zeros(1), 0, 100)], 100)
    plan = plan_training(before, [form], told, Training(True, hidden, 160))
    assert plan.averages == plan.confounded == trained
    assert bool(plan.ends) == (not trained)


def record(number, val_acc=None, test=0.5, **made_by):
    metrics = {"test_acc": test}
    if val_acc is not None:
        metrics["val_acc"] = val_acc
    scores = ({"a": test}, test, 0.0, 1.0, 0.1, 1, 1)
    return RoundRecord(number, [1], *scores, metrics=metrics, **made_by)


def skipped(number):
    return RoundRecord(number, [1], None, None, None, None, 0.1, 1, 1)


def start(val_acc=None, test=0.5, **details):
    head = record(0, val_acc, test, method="auto", details=details)
    return Round0([1], 0.1, {"1": 5}, 1, 0, 1, 0, closed_form=head)


CHOSEN = {"chosen_by": "leave_one_out", "confounded_share": 0.1}
#: Half of how domains differ goes with the class, and a little more than that.
HALF, MORE = {**CHOSEN, "confounded_share": 0.5}, {"confounded_share": 0.51}
ABSENT = {**CHOSEN, "withheld_share": 0.3, "absent_rows": 5}
AVERAGED = {**CHOSEN, "absent_rows": 0, "averaged": True}
NONE = None, None


@pytest.mark.parametrize(
    ("details", "shares", "head", "by"),
    [
        # Validation rows decide.
        (CHOSEN, (0.8, 0.9), "trained", "validation"),
        (HALF, (0.8, 0.9), "trained", "validation"),
        (HALF, (0.9, 0.8), "closed_form", "validation"),
        (CHOSEN, (0.8, 0.8), "closed_form", "validation"),
        # Without them it is what rows left out have chosen.
        (CHOSEN, NONE, "closed_form", "leave_one_out"),
        ({"confounded_share": 0.1}, NONE, "closed_form", "default"),
        # Classes that nobody sent are known to the trained one alone.
        (ABSENT, NONE, "trained", "absent"),
        ({**ABSENT, "absent_rows": 0}, NONE, "closed_form", "leave_one_out"),
        # A mean of both takes the place of the trained one.
        (AVERAGED, NONE, "average", "withheld"),
        ({**AVERAGED, "hidden_units": 256}, NONE, "average", "columns"),
        ({**AVERAGED, "absent_rows": 5}, NONE, "average", "absent"),
        (AVERAGED, (0.8, 0.9), "average", "validation"),
        (AVERAGED, (0.8, 0.7), "closed_form", "validation"),
        # Unless labels and domains are confounded in part: no rows can choose then.
        ({**AVERAGED, "confounded_share": 0.25}, NONE, "average", "withheld"),
        ({**AVERAGED, "confounded_share": 0.26}, NONE, "average", "confounded"),
        ({**AVERAGED, "confounded_share": 0.26}, (0.8, 0.7), "average", "confounded"),
        # Nor if domains have no classes in common.
        ({**AVERAGED, "confounded_share": 1.0}, NONE, "average", "confounded"),
        # Where labels and domains are confounded it is the trained one.
        (MORE, NONE, "trained", "confounded"),
        (MORE, (0.9, 0.1), "trained", "confounded"),
    ],
)
@pytest.mark.parametrize("tests", [(0.1, 0.9), (0.9, 0.1)])
def test_which_head_is_left(details, shares, head, by, tests):
    """Test rows have no say."""
    (before, after), (start_test, test) = shares, tests
    rounds = [record(1, before and 0.1), record(2, after, test), skipped(3)]
    kept = kept_head(start(before, start_test, **details), rounds)
    assert kept == Kept(head, by, before, after)


@pytest.mark.parametrize(
    ("share", "absent", "head"),
    [(1, 0, "closed_form"), (1, 5, "average"), (0.5, 0, "average")],
)
def test_rows_not_trained_on_leave_the_mean_unless_it_is_the_one_shot_head(
    share, absent, head
):
    kept = kept_head(start(**{**AVERAGED, "absent_rows": absent}), [record(1)], share)
    assert kept == Kept(head, "log_loss", None, None)


def test_before_any_round_there_is_only_the_one_in_closed_form():
    kept = kept_head(start(0.5, confounded_share=0.9), [])
    assert kept == Kept("closed_form", "default", None, None)
    kept = kept_head(start(0.5), [skipped(1)])
    assert kept == Kept("closed_form", "default", 0.5, None)


def test_both_shares_are_said():
    said = kept_line(Kept("average", "validation", 0.8, 0.9), averaged=True)
    assert "right in closed form, 90.00% by both heads' mean)" in said
    assert "0.00% trained" in kept_line(Kept("trained", "validation", 0.8, 0.0))


def test_a_mean_without_the_one_shot_head_is_not_called_one():
    kept, adds = Kept("average", "log_loss", None, None), "adds to the scores of the "
    said = kept_line(kept, averaged=True, share=0.0, adds=True)
    assert said.startswith(f"kept: the trained head, which {adds}head in closed form (")
    assert "kept: the trained head (" in kept_line(kept, averaged=True, share=0.0)
    said = kept_line(kept, averaged=True, share=0.3, adds=True)
    assert "both heads, 30% of the head in closed form, " in said
    assert f"where the trained head {adds}head" in said
