"""The results schema: every field there and back, everything else refused.

Tests of reporting/json_values.py.

The folder of a run and the files in it.
"""

import copy
import csv
import io
import json
import math
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from own_process import python
from written_runs import check_growth, made, make_head, make_record, make_results, noisy

from federatedscope_ggeur import reporting
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import Expected
from federatedscope_ggeur.errors import ConfigError, DataError, name_settings
from federatedscope_ggeur.models.heads import LinearHead
from federatedscope_ggeur.reporting import (
    RESULTS_FILE,
    Divergence,
    Results,
    average,
    metrics_csv,
    numbers,
    read_results,
    results_table,
    summarise,
)
from federatedscope_ggeur.reporting.tables import text_table

FRACTIONS = st.floats(0, 1)


@pytest.mark.parametrize("round0", [True, False])
def test_round_trip(round0):
    results = make_results(round0=round0)
    text = results.to_json()
    assert Results.from_json(text) == results
    assert Results.from_json(text).to_json() == text
    assert text.isascii()


def test_round_trip_of_heads_made_in_one_go():
    head = make_head("lda", {"clean": 0.4, "empty": None})
    results = make_results(closed_form=head, calibrated=replace(head, method="ccvr"))
    assert Results.from_json(results.to_json()) == results
    assert results.final.head == "calibrated"
    assert results.final.accuracy == head.accuracy
    spent = [results.round0, head, head, *results.rounds]
    assert results.final.bytes_up == sum(part.bytes_up for part in spent)
    plain = numbers(results)
    assert "seconds" not in plain["round0"]["closed_form"]
    assert "seconds" not in plain["calibrated"]
    alone = make_results([], closed_form=head)
    assert alone.final.head == "closed_form"
    assert alone.final.avg == head.avg


def test_json_is_strict_and_its_order_fixed():
    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    results = make_results()
    plain = json.loads(results.to_json(), parse_constant=refuse)
    assert next(iter(plain)) == "schema_version"
    assert list(plain["round0"]["statistics_bytes_up"]) == ["1", "2", "10"]
    assert plain["rounds"][2]["accuracy"]["empty"] is None
    config = dict(reversed(list(results.config.items())))
    assert replace(results, config=config).to_json() == results.to_json()


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"lr": math.nan}, "results.config.lr"),
        ({"a": {"b": [0, np.float32(1)]}}, "results.config.a.b[1]"),
        ({"a": {1: 2}}, "results.config.a"),
        ({"a": {1, 2}}, "results.config.a"),
    ],
)
def test_only_plain_values_are_written(config, where):
    with pytest.raises(DataError) as error:
        make_results(config=config).to_json()
    assert str(error.value).startswith(f"{where}: ")


@pytest.mark.parametrize("text", ["", "[]", "null", '{"schema_version": 1', "1"])
def test_what_is_no_results_file_is_refused(text):
    with pytest.raises(DataError, match="results"):
        Results.from_json(text)


def test_numbers_leave_out_what_two_equal_runs_may_differ_in():
    def run(factor, outdir):
        base = make_results()
        return replace(
            base,
            config={**base.config, "outdir": outdir, "expname_tag": outdir},
            versions={"python": outdir},
            round0=replace(base.round0, seconds=factor),
            rounds=[replace(r, seconds=factor * r.round) for r in base.rounds],
            final=replace(base.final, seconds=factor),
        )

    assert numbers(run(1.0, "a")) == numbers(run(2.0, "b"))
    assert numbers(make_results(round0=False))["round0"] is None


@pytest.mark.parametrize("name", ["loss", "avg", "std", "bytes_up", "bytes_down"])
def test_numbers_keep_every_score_and_size(name):
    base = make_results()
    last = base.rounds[-1]
    value = getattr(last, name)
    next_up = value + 1 if isinstance(value, int) else math.nextafter(value, 2)
    changed = replace(
        base, rounds=[*base.rounds[:-1], replace(last, **{name: next_up})]
    )
    assert numbers(changed) != numbers(base)


@pytest.mark.parametrize("cls", [*filter(is_dataclass, vars(reporting).values())])
def test_every_field_is_documented(cls):
    """docs/results.md leaves the fields to the classes."""
    lines = [ln for ln in cls.__doc__.splitlines() if re.match(r"    [a-z]", ln)]
    said = {word for line in lines for word in re.findall(r"\w+", line.split(" : ")[0])}
    assert not {f.name for f in fields(cls) if f.compare} - said


@pytest.fixture
def predicting():
    """Results with a model of three features and the classes 0 and 1."""
    model = LinearHead(3, 2)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]))
        model.classifier.bias.zero_()
    expected = Expected(("a", "b"))
    return replace(make_results(), model=model, prepare=expected.take)


def test_the_model_is_no_part_of_the_file_or_of_equality(predicting):
    assert predicting == make_results()
    assert predicting.to_json() == make_results().to_json()
    assert "LinearHead" not in repr(predicting)


@pytest.mark.parametrize(
    "features",
    [
        [[2, 1, 0], [0, 1, 5]],
        np.array([[2, 1, 0], [0, 1, 5]]),
        np.array([[2, 1, 0], [0, 1, 5]], dtype=np.float64),
        torch.tensor([[2.0, 1, 0], [0, 1, 5]], requires_grad=True),
    ],
    ids=["list", "int", "float64", "tensor"],
)
def test_predictions(predicting, features):
    classes = predicting.predict(features)
    assert classes.dtype == np.int64
    assert classes.tolist() == [0, 1]
    shares = predicting.predict_proba(features)
    assert shares.dtype == np.float32
    likely = 1 / (1 + math.exp(-1))
    likely = 0.999 * likely + 0.001 / 2
    expected = np.array([[likely, 1 - likely], [1 - likely, likely]])
    assert np.allclose(shares, expected)


def test_the_order_in_memory_changes_no_bit(predicting):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    expected = predicting.predict_proba(rows)
    turned = rows[:, ::-1].copy()[:, ::-1]  # the same rows, with a negative stride
    for same in (np.asfortranarray(rows), turned, torch.tensor(rows.T.copy()).T):
        assert np.array_equal(predicting.predict_proba(same), expected)


def test_no_rows_give_no_predictions(predicting):
    assert predicting.predict(np.zeros((0, 3))).shape == (0,)
    assert predicting.predict_proba(np.zeros((0, 3))).shape == (0, 2)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            np.zeros((2, 4)),
            r"have shape \[n, 3\], like the run's embeddings; got \[2, 4\]",
        ),
        ([[1, 2, 3], [1, 2]], "must be an array"),
        (None, "must have the shape"),
    ],
    ids=["wide", "ragged", "none"],
)
def test_what_is_no_embeddings_is_refused(predicting, features, message):
    with pytest.raises(DataError, match=rf"^features: .*{message}"):
        predicting.predict(features)


# Results that somebody made to do harm are named; long honest ones are read.


HONEST = made(noisy(0.8, 0, 3), 0, closed_form={"Art": 0.5, "Clipart": 0.25})
CONTENT = json.loads(HONEST.to_json())
DIGITS = "9" * 6000


def steps_of(node, path=()):
    """The path to every value, of lists to the first one."""
    yield path
    if isinstance(node, dict):
        for name, child in node.items():
            yield from steps_of(child, (*path, name))
    elif isinstance(node, list) and node:
        yield from steps_of(node[0], (*path, 0))


def put(path, value):
    content = copy.deepcopy(CONTENT)
    if not path:
        return value
    node = content
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    if value is ...:
        del node[path[-1]]
    return content


def refusal(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / RESULTS_FILE).write_text(text)
    with pytest.raises(DataError) as caught:
        read_results(folder)
    message = str(caught.value)
    assert str(folder / RESULTS_FILE) in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("rounds", 0, "avg"), "1e308", "rounds[0].avg: must lie in 0..1"),
        (("final", "avg"), "-0.1", "final.avg: must lie in 0..1"),
        (("final", "accuracy", "Art"), "1.5", "final.accuracy.Art: must lie in 0..1"),
        (("rounds", 0, "seconds"), "1e308", "rounds[0].seconds: must lie in 0..1e+15"),
        (("rounds", 0, "loss"), "1e999", "rounds[0].loss: inf is not a finite number"),
        (("rounds", 0, "loss"), "NaN", "NaN is not JSON"),
        (("config", "outdir"), "-Infinity", "-Infinity is not JSON"),
        (("config", "outdir"), "1e999", "config.outdir: inf is not a finite number"),
        (("seed",), DIGITS, "a number has 6000 digits"),
        (("config", "seed"), f"-{DIGITS}", "a number has 6001 digits"),
        (("schema_version",), DIGITS, "a number has 6000 digits"),
        (("seed",), "9" * 19, "seed: 9999999999999999999 is larger than"),
        (("rounds", 0, "clients"), "[1, 99999999999999999999]", "clients[1]: 999"),
        (("rounds", 0, "clients"), "[1, true]", "clients[1]: expected int, found True"),
        (("rounds",), "{}", "rounds: expected list, found {}"),
        (("rounds", 0, "round"), '"1"', "rounds[0].round: expected int, found '1'"),
        (("status",), "[]", "status: expected one of 'finished'"),
        (("config",), "[" * 100 + "]" * 100, "config: expected dict, found [["),
        (
            ("config", "a"),
            "[" * 100 + "]" * 100,
            "config.a: the value has more than 50 nested levels",
        ),
        (("config",), "[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (("schema_version",), "4", "reads 10 and 11, found 4"),
        (("schema_version",), ..., "found None"),
        (("final",), ..., "results: fields are missing: final"),
        (("rounds", 0, "loss"), "true", "rounds[0].loss: expected int or float"),
        (("seed",), "1.5", "seed: expected int"),
        (("domains", 0), "null", "domains[0]: expected str"),
        (("round0",), '{"x": 1}', "round0: fields are missing: clients, seconds"),
        (("final", "x"), "1", "final: unknown fields: x"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, path, value, said):
    text = json.dumps(put(path, ... if value is ... else "HERE"))
    if value is not ...:
        text = text.replace('"HERE"', value)
    assert said in refusal(tmp_path / "run", text)


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(
        [[], {}, [[]], {"a": {}}, [None], "x" * 10_000, 10**18, 10**400, 1e308, -1]
    ),
    st.recursive(st.integers(), st.lists, max_leaves=5),
)


@pytest.mark.slow
@examples(150, suppress_health_check=[*HealthCheck])
@given(path=st.sampled_from(sorted(steps_of(CONTENT), key=str)), value=HOSTILE)
def test_whatever_stands_there_compare_ends_in_words(path, value, tmp_path, capsys):
    """An error is one line for each file that is wrong, and a traceback never."""
    for name, content in (("one", put(path, value)), ("other", CONTENT)):
        (tmp_path / name).mkdir(exist_ok=True)
        text = json.dumps(content)
        (tmp_path / name / RESULTS_FILE).write_text(text)
    assert main(["compare", str(tmp_path)]) in (0, 1)
    assert len(capsys.readouterr().err.splitlines()) <= 3


def test_work_grows_with_the_rounds_and_no_faster(tmp_path):
    check_growth(read_results, tmp_path)


# The score of a run, from its rounds.


SCORES = st.fixed_dictionaries(
    {"a": FRACTIONS, "b": st.none() | FRACTIONS, "empty": st.none()}
)


def oracle(rounds):
    """`summarise`, straight from its description."""
    used = [r for r in rounds if r.accuracy is not None]
    used = used[-5:]
    means = {}
    for domain in ("a", "b", "empty") if used else ():
        known = [r.accuracy[domain] for r in used if r.accuracy[domain] is not None]
        means[domain] = np.mean(known) if known else None
    scores = [mean for mean in means.values() if mean is not None]
    avg, std = (np.mean(scores), np.std(scores)) if scores else (None, None)
    return [r.round for r in used], means, avg, std


@given(rounds=st.lists(st.none() | SCORES, max_size=12))
def test_summarise_agrees_with_the_oracle(rounds):
    rounds = [make_record(i, scores) for i, scores in enumerate(rounds, 1)]
    final = summarise(rounds)
    used, means, avg, std = oracle(rounds)
    assert final.rounds == used
    assert final.accuracy.keys() == means.keys()
    for domain, mean in means.items():
        assert final.accuracy[domain] == (mean and pytest.approx(mean, abs=1e-12))
    assert final.avg == (avg and pytest.approx(avg, abs=1e-12))
    assert final.std == (std and pytest.approx(std, abs=1e-12))
    assert final.bytes_up == 1000 * len(rounds)
    assert final.bytes_down == 3000 * len(rounds)


def test_totals_include_round_0():
    start = make_results().round0
    assert replace(start, prepare_bytes_up=4).bytes_up == start.bytes_up + 4
    results = make_results([None, None])
    assert results.final.bytes_up == 5 + 6 + 7 + 2 * 1000
    assert results.final.bytes_down == 90 + 9 + 2 * 3000
    assert results.final.seconds == pytest.approx(0.3 + 0.1 + 0.2)


def test_equal_scores_have_no_deviation():
    assert average(dict.fromkeys("abcdefg", 0.1)) == (0.1, 0.0)


# What the table of a run says, and its metrics.csv.


def test_table():
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


def test_the_table_says_whose_models_were_scored():
    domains = {"domains": ["clean", "noisy"], "unseen_domains": []}
    results = make_results([{"clean": 0.5, "noisy": 0.3}], **domains)
    assert "scored:" not in results_table(results)
    own = replace(results, final=replace(results.final, scored="clients"))
    (line,) = [x for x in results_table(own).splitlines() if x.startswith("scored:")]
    assert line.startswith("scored: each client's own model, on its own test rows; ")
    # No client has an unseen domain, so none of their models is scored on it.
    unseen = replace(own, unseen_domains=["noisy"])
    assert f"{line}; unseen domains: the global one" in results_table(unseen)


def test_table_of_heads_made_in_one_go():
    scores = {"clean": 0.5, "noisy": 0.3}
    heads = {
        "closed_form": make_head("lda", {"clean": 0.4, "noisy": 0.2}),
        "calibrated": make_head("ccvr", {"clean": 0.6, "noisy": 0.4}),
    }
    domains = {"domains": ["clean", "noisy"], "unseen_domains": []}
    lines = results_table(make_results([scores], **heads, **domains)).splitlines()
    titles = ["closed form lda", "round 1", "mean of last 1 evaluated"]
    assert re.split("  +", lines[0]) == ["accuracy in %", *titles, "calibrated ccvr"]
    assert lines[2].split() == ["clean", "40.00", "50.00", "50.00", "60.00"]
    assert lines[5].split() == ["AVG", "30.00", "40.00", "40.00", "50.00"]
    alone = results_table(make_results([], closed_form=heads["closed_form"], **domains))
    assert alone.splitlines()[2].split() == ["clean", "40.00"]
    unscored = results_table(make_results([None], **{**heads, "closed_form": None}))
    assert unscored.splitlines()[2].split()[-1] == "60.00"


def test_metrics_csv_has_the_closed_form_as_round_0():
    head = make_head("lda", {"clean": 0.4})
    text = metrics_csv(make_results([{"clean": 0.5}], closed_form=head))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["round"] for row in rows] == ["0", "1"]
    assert rows[0]["accuracy_clean"] == "0.4"


def test_a_notebook_shows_the_same_table():
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


DIVERGED = {
    "2 (client 10, train.optimizer.lr 0.5): loss 20, 1.25 at first; largest weight "
    "7.5e+06": Divergence(2, 10, 0.5, 20.0, 1.25, 7.5e6),
    "1 (the server's step): largest weight 2e+03": (
        Divergence(1, None, None, None, None, 2e3)
    ),
    "1 (client 1, train.optimizer.lr 10): loss 9e+04": (
        Divergence(1, 1, 10.0, 9e4, 9e4, None)
    ),
}


@pytest.mark.parametrize("said", DIVERGED)
def test_table_says_where_training_diverged(said):
    name_settings({"optimizer.lr": "train.optimizer.lr"})  # as cfg_ggeur does
    scores = [{"clean": 0.5}, {"clean": 0.1}]
    results = make_results(scores, diverged=DIVERGED[said])
    last = results_table(results).splitlines()[-1]
    assert last == f"training diverged in round {said}"
    assert Results.from_json(results.to_json()) == results
    assert "diverged" not in results_table(replace(results, diverged=None))


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_table_says_where_a_run_broke_off(status):
    scores = [{"clean": 0.5}, {"clean": 0.5}]
    text = results_table(make_results(scores, status=status))
    assert text.splitlines()[-1] == f"{status} after round 2"
    text = results_table(make_results([], status=status))
    assert text.splitlines()[-1] == f"{status} after round 0"


def test_metrics_csv_reads_back_to_the_bit():
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


def test_metrics_csv_without_rounds_is_its_header():
    results = make_results([], domains=["a", "b"])
    assert metrics_csv(results) == (
        "round,avg,std,loss,seconds,bytes_up,bytes_down,accuracy_a,accuracy_b\n"
    )


# Tables.


def test_blocks_share_the_widths_of_their_columns():
    lines = text_table([["", "up"]], [["a round", "7"], ["all", "700 kB"]])
    assert lines == ["             up", "a round       7", "all      700 kB"]


def test_the_columns_that_stand_left():
    assert text_table([["n", "name"], ["10", "a"]], left=[1]) == [" n  name", "10  a"]


def test_no_rows_are_no_lines():
    assert text_table([]) == []


def test_run_folders_follow_federatedscope_and_are_never_reused(tmp_path):
    outdir = tmp_path / "a" / "b"
    first = reporting.new_run_folder(outdir, "exp")
    assert first == outdir / "exp"
    (first / "results.json").write_text("kept")
    # Far faster than one a second, so several share a time stamp.
    others = [reporting.new_run_folder(outdir, "exp") for _ in range(5)]
    assert len({first, *others}) == 6
    for folder in others:
        assert folder.parent == first
        assert re.fullmatch(r"sub_exp_\d{14}(_\d+)?", folder.name)
        assert not os.listdir(folder)
    assert (first / "results.json").read_text() == "kept"


def test_runs_that_start_together_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: reporting.new_run_folder(tmp_path, "exp"), range(32))
        )
    assert len(set(made)) == 32


@pytest.mark.parametrize("blocked", ["out", "out/exp"])
def test_a_file_in_the_way_is_a_named_error(tmp_path, blocked):
    path = tmp_path / blocked
    path.parent.mkdir(exist_ok=True)
    path.write_text("kept")
    problem = rf"'{re.escape(str(path))}' is not a folder.*outdir"
    with pytest.raises(ConfigError, match=problem):
        reporting.new_run_folder(tmp_path / "out", "exp")
    assert path.read_text() == "kept"


def test_write_run_writes_nothing_when_results_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"results\.config\.lr"):
        reporting.write_run(tmp_path, make_results(config={"lr": float("inf")}))
    assert os.listdir(tmp_path) == []


# Whose model is to predict: one number for all rows, or one for each.


KNOWN = [reporting.ClientInfo(1, "art", 9, 3), reporting.ClientInfo(4, "photo", 9, 3)]


def numbers_told(clients, rows=3, shared=True, known=KNOWN):
    return reporting.numbers_of_rows(clients, rows, known, shared, "--clients").tolist()


def test_one_number_is_for_all_rows_or_there_is_one_for_each():
    for one in (4, np.int64(4), torch.tensor(4)):
        assert numbers_told(one) == [4, 4, 4]
        assert numbers_told(one, rows=0) == numbers_told([], rows=0) == []
    each = [1, 4, 0]
    for form in (each, tuple(each), np.array(each, dtype="i2"), torch.tensor(each)):
        assert numbers_told(form) == each


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        (None, "say which client's model is to predict"),
        (2, "there is no client 2"),
        ([1, 4, 10**9], "there is no client 1000000000"),
        ("art", "must be a client's number"),
        (1.0, "must be a client's number"),
        (True, "must be a client's number"),
        ([[1, 4, 1]], "must be a client's number"),
        ([[1], [4, 1]], "must be a client's number"),
        ([1, None, 4], "must be a client's number"),
    ],
    ids=str,
)
def test_another_is_refused_with_the_clients(clients, said):
    with pytest.raises(DataError, match=rf"--clients: .*{said}") as caught:
        numbers_told(clients)
    assert "1 (art), 4 (photo)" in str(caught.value)


@pytest.mark.parametrize("clients", [[1, 4], [], [1] * 4], ids=str)
def test_as_many_as_rows(clients):
    with pytest.raises(DataError, match=f"each of the 3 rows, got {len(clients)}"):
        numbers_told(clients)


def test_without_a_global_model_there_is_no_number_0():
    with pytest.raises(DataError, match="there is no client 0"):
        numbers_told(0, shared=False)
    with pytest.raises(DataError, match="0 is the global model"):
        numbers_told(None)
    with pytest.raises(DataError) as caught:
        numbers_told(None, shared=False)
    assert "global" not in str(caught.value)


def test_of_many_clients_and_odd_names_the_message_stays_short():
    odd = "two\nlines\x1b[31m" + "x" * 5000
    many = [reporting.ClientInfo(k, odd, 1, 1) for k in range(1, 500)]
    with pytest.raises(DataError, match="479 more") as caught:
        numbers_told(None, known=many)
    said = str(caught.value)
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 3000


# Where and how a run was made, asked of real processes and a real repository.


QUICK = {"federate.total_round_num": 1}
SCRIPT = """
import json, sys
from federatedscope_ggeur.reporting import Capture
capture = Capture()
held = bytearray(int(sys.argv[1]))
held[::4096] = b"1" * len(held[::4096])
found = capture.provenance()
print(json.dumps([found.peak_memory, found.git_commit, found.git_changed,
                  found.command[-1]]))
"""


def ask(folder: Path, size: int):
    return json.loads(python("-c", SCRIPT, size, cwd=folder).stdout)


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_peak_memory_and_command_are_of_the_process(tmp_path):
    little, commit, changed, command = ask(tmp_path, 1)
    much = ask(tmp_path, 200_000_000)[0]
    assert 150e6 < much - little < 250e6
    assert (commit, changed, command) == (None, None, "1")


@pytest.mark.slow
def test_the_commit_of_the_users_folder(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "mine.yaml").write_text("a: 1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert ask(tmp_path, 1)[1:3] == [commit, False]
    (tmp_path / "mine.yaml").write_text("a: 2")
    assert ask(tmp_path, 1)[1:3] == [commit, True]


@pytest.mark.slow
def test_a_peak_of_before_is_not_the_runs():
    reporting.Capture()
    held = np.ones(100_000_000)
    del held
    before = reporting.Capture().provenance().peak_memory
    held = np.ones(100_000_000)
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory begins anew on Linux only")
    assert reporting.Capture().provenance().peak_memory - before > 500e6
    del held


def test_order_and_holders_do_not_matter_but_rows_do():
    from federatedscope_ggeur import load_config
    from federatedscope_ggeur.data import centralise, fingerprint
    from federatedscope_ggeur.engines.run import load_federated_data

    def of(**changes):
        settings = {k.replace("__", "."): v for k, v in changes.items()}
        return load_federated_data(load_config("ggeur_quickstart", settings))

    iid = {"data__splitter": "iid", "data__splitter_args": [], "seed": 3}
    four, eight = of(**iid), of(federate__client_num=8, **iid)
    assert fingerprint(four) == fingerprint(eight) == fingerprint(centralise(four))
    four.clients[0].train.features[0, 0] += 1e-3
    assert fingerprint(four)[1] != fingerprint(eight)[1]


@pytest.mark.slow
def test_a_run_says_which_rows_it_used_and_its_times_since_it_began():
    from federatedscope_ggeur import run

    one, other = (run("ggeur_quickstart", overrides={**QUICK, "seed": s}) for s in "12")
    found = one.provenance
    assert found.data.rows == sum(c.train_rows + c.test_rows for c in one.clients)
    # Another seed splits the rows otherwise, but they are the same rows.
    assert found.data.sha256 != other.provenance.data.sha256
    assert found.data.pool == other.provenance.data.pool is not None
    assert found.wall_seconds > one.final.seconds
    assert found.cpu_seconds > 0
    assert found.cores >= 1
    assert found.processor
