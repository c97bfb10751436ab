"""Which of two heads a run leaves, by its records alone."""

import pytest

from federatedscope_ggeur.federation.exchanges.closed_form.exchange import kept_head
from federatedscope_ggeur.reporting import Kept, Round0, RoundRecord
from federatedscope_ggeur.reporting.lines import kept_line


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


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize(
    ("before", "after", "head"),
    [(0.8, 0.9, "trained"), (0.9, 0.8, "closed_form"), (0.8, 0.8, "closed_form")],
)
def test_validation_rows_decide(share, before, after, head):
    round0 = start(before, confounded_share=share, chosen_by="leave_one_out")
    rounds = [record(1, 0.1), record(2, after), skipped(3)]
    assert kept_head(round0, rounds) == Kept(head, "validation", before, after)


def test_without_them_it_is_what_rows_left_out_have_chosen():
    round0 = start(chosen_by="leave_one_out", confounded_share=0.1)
    kept = kept_head(round0, [record(1)])
    assert kept == Kept("closed_form", "leave_one_out", None, None)
    assert kept_head(start(confounded_share=0.1), [record(1)]).by == "default"


def test_classes_that_nobody_sent_are_known_to_the_trained_one_alone():
    details = {"chosen_by": "leave_one_out", "confounded_share": 0.1}
    round0 = start(**details, withheld_share=0.3, absent_rows=5)
    assert kept_head(round0, [record(1)]) == Kept("trained", "absent", None, None)
    round0 = start(**details, withheld_share=0.3, absent_rows=0)
    assert kept_head(round0, [record(1)]).head == "closed_form"


def test_a_mean_of_both_takes_the_place_of_the_trained_one():
    details = {"chosen_by": "leave_one_out", "absent_rows": 0, "averaged": True}
    kept = kept_head(start(**details), [record(1)])
    assert kept == Kept("average", "withheld", None, None)
    for after, head in ((0.9, "average"), (0.7, "closed_form")):
        kept = kept_head(start(0.8, **details), [record(1, after)])
        assert kept == Kept(head, "validation", 0.8, after)
        said = f"right in closed form, {100 * after:.2f}% by both heads' mean)"
        assert said in kept_line(kept, averaged=True)
    assert "0.00% trained" in kept_line(Kept("trained", "validation", 0.8, 0.0))


@pytest.mark.parametrize("values", [(None, None), (0.9, 0.1)])
def test_where_labels_and_domains_are_confounded_it_is_the_trained_one(values):
    before, after = values
    round0 = start(before, confounded_share=0.51, chosen_by="default")
    kept = kept_head(round0, [record(1, after)])
    assert kept == Kept("trained", "confounded", before, after)


@pytest.mark.parametrize("val", [(None, None), (0.6, 0.7)])
def test_test_rows_have_no_say(val):
    heads = set()
    for before, after in [(0.1, 0.9), (0.9, 0.1)]:
        round0 = start(val[0], before, chosen_by="leave_one_out")
        heads.add(kept_head(round0, [record(1, val[1], after)]))
    assert len(heads) == 1


def test_before_any_round_there_is_only_the_one_in_closed_form():
    kept = kept_head(start(0.5, confounded_share=0.9), [])
    assert kept == Kept("closed_form", "default", None, None)
