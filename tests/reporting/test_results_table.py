"""None"""

import csv
import hashlib
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from federatedscope_ggeur.errors import DataError, name_settings
from federatedscope_ggeur.reporting import (
    ClientCompression,
    ClientInfo,
    CompressionRecord,
    Divergence,
    Results,
    SumsRecord,
    metrics_csv,
    read_results,
    results_table,
    write_left,
    write_run,
)
from federatedscope_ggeur.reporting.client_table import CLIENTS_FILE, MOST
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


# Results of more than 1,000 clients: a table beside results.json.


DOMAINS = ("clean", "=näh\n")


def many(make_results, make_record, number):
    """Results of so many clients, with all that there can be of each."""
    infos = [
        ClientInfo(3 * k + 1, DOMAINS[k % 2], k, None if k % 5 else 2)
        for k in range(number)
    ]
    names = [str(info.number) for info in infos]
    accuracy = {name: 1 / (k + 1) for k, name in enumerate(names) if k % 3}
    results = make_results([{"clean": 0.5}, {"clean": 1 / 3}, {"clean": 0.7}])
    results = replace(results, clients=infos, domains=list(DOMAINS), unseen_domains=[])
    everybody = [info.number for info in infos]
    rounds = [
        replace(results.rounds[0], clients=everybody),
        replace(results.rounds[1], clients=everybody[1:]),
        replace(results.rounds[2], clients=everybody[5:9]),
    ]
    head = replace(
        make_record(0, {"clean": 0.5}), method="lda", client_accuracy=accuracy
    )
    errors = {
        name: ClientCompression(k / 7, None, 0.25, 1e-300)
        for k, name in enumerate(names)
        if k % 2
    }
    round0 = replace(
        results.round0,
        clients=everybody[:-1],
        statistics_bytes_up={name: 10 + k for k, name in enumerate(names)},
        closed_form=replace(head, clients=[]),
        compression=CompressionRecord(errors, 0.5),
        sums=SumsRecord(everybody[3:], 5, {"counts": 3}, [0], [], 2),
    )
    final = replace(results.final, client_accuracy=accuracy)
    return replace(results, rounds=rounds, round0=round0, final=final)


def test_up_to_a_thousand_clients_results_json_holds_everything(
    make_results, make_record, tmp_path
):
    results = many(make_results, make_record, MOST)
    write_left(tmp_path, results, None, ())
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert text == results.to_json()
    assert not (tmp_path / CLIENTS_FILE).exists()
    assert read_results(tmp_path) == results


@pytest.mark.slow
def test_beyond_both_files_together_are_the_same_results(
    make_results, make_record, tmp_path
):
    results = many(make_results, make_record, MOST + 2)
    write_run(tmp_path, results)
    found = read_results(tmp_path)
    assert found == results
    assert found.to_json() == results.to_json()


@pytest.mark.slow
def test_results_json_has_sums_and_does_not_grow(make_results, make_record, tmp_path):
    sizes = []
    for number in (MOST + 2, 4 * MOST):
        write_left(tmp_path, many(make_results, make_record, number), None, ())
        sizes.append((tmp_path / "results.json").stat().st_size)
    assert sizes[1] < sizes[0] + 200
    raw = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    clean, other = raw["clients"]["domains"]
    assert raw["clients"]["number"] == 4 * MOST
    assert (clean["domain"], clean["clients"]) == ("clean", 2 * MOST)
    assert clean["train_rows"] == sum(range(0, 4 * MOST, 2))
    assert other["test_rows"] is None
    sent = raw["round0"]["statistics_bytes_up"]
    assert (sent["clients"], sent["least"], sent["largest"]) == (4000, 10, 4009)
    assert sent["sum"] == sum(range(10, 4010))
    assert raw["rounds"][1]["clients"] == {"clients": 3999}
    assert raw["rounds"][2]["clients"] == [16, 19, 22, 25]


def test_the_table_has_a_row_for_each_client(make_results, make_record, tmp_path):
    write_left(tmp_path, many(make_results, make_record, MOST + 2), None, ())
    with open(tmp_path / CLIENTS_FILE, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == MOST + 2
    assert rows[0]["rounds"] == "1"
    assert rows[5]["rounds"] == "1-2"
    # made for people: a name that looks like a formula is none there
    assert rows[1]["domain_name"] == "'=näh\\n"
    assert rows[1]["accuracy"] == "0.5"
    assert (rows[0]["accuracy"], rows[0]["test_rows"]) == ("", "2")


SPOILT = {
    "cut": (lambda text: text[:-20], "several lengths"),
    "columns": (lambda text: "x" + text, "has the columns xnumber"),
    "text": (lambda text: text.replace("\n4,1", "\n4,one", 1), "without a number"),
    "two in a cell": (
        lambda text: text.replace("\n4,1", '\n4,"1,1"', 1),
        "without a number",
    ),
    "infinite": (
        lambda text: text.replace("\n4,1", "\n4,1e999", 1),
        "without a number",
    ),
    "a domain": (lambda text: text.replace("\n4,1", "\n4,9", 1), "unknown domain"),
    "rounds": (lambda text: text.replace(",1-2,", ",1-x,", 1), "in the column rounds"),
    "many rounds": (lambda text: text.replace(",1-2,", ",1-999999999,", 1), None),
    "empty": (lambda text: "\n", "has the columns"),
}


def test_a_table_that_is_missing_or_of_other_results_is_refused(
    make_results, make_record, tmp_path
):
    results = many(make_results, make_record, MOST + 2)
    write_left(tmp_path, results, None, ())
    path = tmp_path / CLIENTS_FILE
    path.write_text(path.read_text(encoding="utf-8").replace("\n4,", "\n5,", 1))
    with pytest.raises(DataError, match="belongs to other results"):
        read_results(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="is missing, which lists the clients"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_table_is_refused(name, make_results, make_record, tmp_path):
    results = many(make_results, make_record, MOST + 2)
    write_left(tmp_path, results, None, ())
    spoil, problem = SPOILT[name]
    path, about = tmp_path / CLIENTS_FILE, tmp_path / "results.json"
    before = path.read_text(encoding="utf-8")
    after = spoil(before)
    assert after != before
    path.write_text(after, encoding="utf-8")
    sums = [hashlib.sha256(text.encode()).hexdigest() for text in (before, after)]
    text = about.read_text(encoding="utf-8")
    about.write_text(text.replace(*sums), encoding="utf-8")
    if problem is None:  # no round of it is summed, so nothing is made of it
        assert read_results(tmp_path) == results
        return
    with pytest.raises(DataError, match=problem):
        read_results(tmp_path)
