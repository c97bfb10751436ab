"""Results that somebody made to do harm are named; long honest ones are read."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_runs import check_growth, made, noisy, write

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.reporting import RESULTS_FILE, read_results

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
        (("round0",), '{"x": 1}', "round0: fields are missing: clients, seconds"),
        (("final", "x"), "1", "final: unknown fields: x"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, path, value, said):
    text = json.dumps(put(path, "HERE")).replace('"HERE"', value)
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
@settings(max_examples=150, deadline=None, suppress_health_check=[*HealthCheck])
@given(path=st.sampled_from(sorted(steps_of(CONTENT), key=str)), value=HOSTILE)
def test_whatever_stands_there_compare_ends_in_words(path, value, tmp_path, capsys):
    """An error is one line for each file that is wrong, and a traceback never."""
    for name, content in (("one", put(path, value)), ("other", CONTENT)):
        (tmp_path / name).mkdir(exist_ok=True)
        text = json.dumps(content)
        (tmp_path / name / RESULTS_FILE).write_text(text)
    assert main(["compare", str(tmp_path)]) in (0, 1)
    assert len(capsys.readouterr().err.splitlines()) <= 3


@pytest.mark.slow
def test_a_long_run_opens_and_is_shown(tmp_path, capsys):
    """4,000 rounds of 50 clients: what is read is what was written."""
    results = made(noisy(0.8, 0, 4_000), 0)
    rounds = [replace(one, clients=list(range(1, 51))) for one in results.rounds]
    results = replace(results, rounds=rounds)
    folder = write(tmp_path / "run", results)
    assert read_results(folder) == results
    assert main(["compare", str(folder)]) == 0
    assert main(["report", str(folder), "--format", "png"]) == 0
    assert "Art" in capsys.readouterr().out


def test_work_grows_with_the_rounds_and_no_faster(tmp_path):
    check_growth(read_results, tmp_path)
