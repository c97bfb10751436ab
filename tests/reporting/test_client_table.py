"""Results of more than 1,000 clients: a table beside results.json."""

import csv
import hashlib
import json
from dataclasses import replace

import pytest

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.reporting import (
    ClientCompression,
    ClientInfo,
    CompressionRecord,
    SumsRecord,
    read_results,
    write_left,
    write_run,
)
from federatedscope_ggeur.reporting.client_table import CLIENTS_FILE, MOST

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
