"""The README's first table: its commands run, and give what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config

ROOT = Path(__file__).parents[1]
#: Others round otherwise: a test row of a domain is 0.74 points.
WITHIN = 1.0


@pytest.fixture
def first_table(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import first_table

    return first_table


def test_every_row_is_a_command_that_runs(first_table):
    rows = list(first_table.rows((ROOT / "README.md").read_text()))
    assert len(rows) == 6
    for _, settings in rows:
        for more in first_table.DIVISIONS.values():
            load_config(first_table.CONFIG, [*settings, *more])


@pytest.mark.slow
def test_its_numbers_are_those_of_its_commands(first_table):
    text = (ROOT / "README.md").read_text()
    lines = text.split("<!-- table: first -->")[1].split("\n\n")[0].strip().split("\n")
    for line, (_, settings) in zip(lines[2:], first_table.rows(text)):
        said = [float(x) for x in re.findall(r"\| ([0-9.]+) \(", line)]
        for value, more in zip(said, first_table.DIVISIONS.values()):
            found = first_table.scores([*settings, *more], seeds=5)
            assert sum(found) / 5 == pytest.approx(value, abs=WITHIN)
