"""None"""

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from federatedscope_ggeur.errors import name_settings
from federatedscope_ggeur.reporting import (
    Divergence,
    Results,
    metrics_csv,
    results_table,
)
from federatedscope_ggeur.reporting.tables import text_table


def test_table(make_results):
    scores = [{"clean": i / 10, "noisy": 0.5, "empty": None} for i in range(1, 8)]
    results = make_results(
        [*scores, None], domains=["clean", "noisy", "empty"], unseen_domains=["noisy"]
    )
    assert results_table(results).splitlines() == [
        "accuracy in %  round 7  mean of last 5 evaluated",
        "------------------------------------------------",
        "clean            70.00                     50.00",
        "noisy *          50.00                     50.00",
        "empty                -                         -",
        "------------------------------------------------",
        "AVG              60.00                     50.00",
        "STD              10.00                      0.00",
        "------------------------------------------------",
        "* unseen: held by no client",
        "sent 0.01 MB up, 0.02 MB down (round 0 included); 3.9 s",
    ]


def test_the_table_says_whose_models_were_scored(make_results):
    domains = {"domains": ["clean", "noisy"], "unseen_domains": []}
    results = make_results([{"clean": 0.5, "noisy": 0.3}], **domains)
    assert "scored:" not in results_table(results)
    own = replace(results, final=replace(results.final, scored="clients"))
    (line,) = [x for x in results_table(own).splitlines() if x.startswith("scored:")]
    assert line.startswith("scored: each client's own model, on its own test rows; ")
    # No client has an unseen domain, so none of their models is scored on it.
    unseen = replace(own, unseen_domains=["noisy"])
    assert f"{line}; unseen domains: the global one" in results_table(unseen)


def test_table_of_heads_made_in_one_go(make_results, make_head):
    scores = {"clean": 0.5, "noisy": 0.3}
    heads = {
        "closed_form": make_head("lda", {"clean": 0.4, "noisy": 0.2}),
        "calibrated": make_head("ccvr", {"clean": 0.6, "noisy": 0.4}),
    }
    domains = {"domains": ["clean", "noisy"], "unseen_domains": []}
    lines = results_table(make_results([scores], **heads, **domains)).splitlines()
    assert lines[0].split("  ")[0] == "accuracy in %"
    titles = ["closed form lda", "round 1", "mean of last 1", "calibrated ccvr"]
    assert [lines[0].index(title) for title in titles] == sorted(
        lines[0].index(title) for title in titles
    )
    assert lines[2].split() == ["clean", "40.00", "50.00", "50.00", "60.00"]
    assert lines[5].split() == ["AVG", "30.00", "40.00", "40.00", "50.00"]
    alone = results_table(make_results([], closed_form=heads["closed_form"], **domains))
    assert alone.splitlines()[2].split() == ["clean", "40.00"]
    unscored = results_table(make_results([None], **{**heads, "closed_form": None}))
    assert unscored.splitlines()[2].split()[-1] == "60.00"


def test_metrics_csv_has_the_closed_form_as_round_0(make_results, make_head):
    head = make_head("lda", {"clean": 0.4})
    text = metrics_csv(make_results([{"clean": 0.5}], closed_form=head))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["round"] for row in rows] == ["0", "1"]
    assert rows[0]["accuracy_clean"] == "0.4"


def test_a_notebook_shows_the_same_table(make_results):
    names = ["clean", "<b>bold & noisy</b>"]
    scores = {names[0]: 0.7, names[1]: None}
    results = make_results(
        [scores], domains=names, unseen_domains=names[1:], status="failed"
    )
    shown = results._repr_html_()
    tree = ElementTree.fromstring(f"<div>{shown.replace('<br>', '<br/>')}</div>")
    table, below = tree
    cells = [[cell.text for cell in row] for row in table]
    assert cells == [
        ["accuracy in %", "round 1", "mean of last 1 evaluated"],
        ["clean", "70.00", "70.00"],
        ["<b>bold & noisy</b> *", "-", "-"],
        ["AVG", "70.00", "70.00"],
        ["STD", "0.00", "0.00"],
    ]
    text = results_table(results).splitlines()
    assert list(below.itertext()) == text[-3:]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            Divergence(2, 10, 0.5, 20.0, 1.25, 7.5e6),
            "training diverged in round 2 (client 10, train.optimizer.lr 0.5): loss "
            "20, 1.25 at first; largest weight 7.5e+06",
        ),
        (
            Divergence(1, None, None, None, None, 2e3),
            "training diverged in round 1 (the server's step): largest weight 2e+03",
        ),
        (
            Divergence(1, 1, 10.0, 9e4, 9e4, None),
            "training diverged in round 1 (client 1, train.optimizer.lr 10): loss "
            "9e+04",
        ),
    ],
)
def test_table_says_where_training_diverged(make_results, found, said):
    name_settings({"optimizer.lr": "train.optimizer.lr"})  # as cfg_ggeur does
    results = make_results([{"clean": 0.5}, {"clean": 0.1}], diverged=found)
    assert results_table(results).splitlines()[-1] == said
    assert Results.from_json(results.to_json()) == results
    assert "diverged" not in results_table(replace(results, diverged=None))


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_table_says_where_a_run_broke_off(make_results, status):
    scores = [{"clean": 0.5}, {"clean": 0.5}]
    text = results_table(make_results(scores, status=status))
    assert text.splitlines()[-1] == f"{status} after round 2"
    text = results_table(make_results([], status=status))
    assert text.splitlines()[-1] == f"{status} after round 0"


def test_metrics_csv_reads_back_to_the_bit(make_results):
    results = make_results()
    rows = list(csv.DictReader(io.StringIO(metrics_csv(results), newline="")))
    assert len(rows) == len(results.rounds)
    for row, record in zip(rows, results.rounds):
        for name in ("round", "bytes_up", "bytes_down"):
            assert int(row[name]) == getattr(record, name)
        for name in ("avg", "std", "loss", "seconds"):
            expected = getattr(record, name)
            assert row[name] == "" if expected is None else float(row[name]) == expected
        for domain in results.domains:
            expected = (record.accuracy or {}).get(domain)
            cell = row[f"accuracy_{domain}"]
            assert cell == "" if expected is None else float(cell) == expected


def test_metrics_csv_without_rounds_is_its_header(make_results):
    results = make_results([], domains=["a", "b"])
    assert metrics_csv(results) == (
        "round,avg,std,loss,seconds,bytes_up,bytes_down,accuracy_a,accuracy_b\n"
    )


# Tables.


def test_blocks_share_the_widths_of_their_columns():
    lines = text_table([["", "up"]], [["a round", "7"], ["all", "700 kB"]], ruled=True)
    assert lines == [
        "             up",
        "---------------",
        "a round       7",
        "all      700 kB",
        "---------------",
    ]


def test_the_columns_that_stand_left():
    assert text_table([["n", "name"], ["10", "a"]], left=[1]) == [" n  name", "10  a"]


def test_no_rows_are_no_lines():
    assert text_table([]) == []
