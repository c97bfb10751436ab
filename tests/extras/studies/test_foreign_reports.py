"""Names and notes of others in everything that `reporting` writes.

Each is compared with the same made of harmless names: no line more, no element more,
nothing that a terminal, a browser, LaTeX or a spreadsheet would act on.
"""

import csv
import io
import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from foreign_text import ORDINARY, WORST, foreign, hidden_in
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from strict_html import parsed
from written_runs import made

from federatedscope_ggeur.extras.inspect.heatmaps import draw_heatmap
from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.figures import figures
from federatedscope_ggeur.extras.studies.comparison.latex import escaped
from federatedscope_ggeur.extras.studies.comparison.pictures import render
from federatedscope_ggeur.extras.studies.comparison.runs import FoundRun
from federatedscope_ggeur.extras.studies.comparison.table import Row, Table
from federatedscope_ggeur.extras.studies.study import Axis, Failed, Study, Tried, Tuned
from federatedscope_ggeur.printable import LINE, NAME, markdown, printable
from federatedscope_ggeur.reporting import Finding, PooledRows, Privacy, Screening
from federatedscope_ggeur.reporting.plots import draw_curve, shortened
from federatedscope_ggeur.reporting.results import results_html, results_table
from federatedscope_ggeur.reporting.tables import csv_text

pytestmark = pytest.mark.slow

SOME = examples(30)
PLAIN = ("a", "b", "c")
three_names = st.lists(foreign, min_size=3, max_size=3, unique_by=printable)
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def run_of(names, scores=(0.5, 0.25)):
    """A run on two domains and two classes with such names."""
    one, two, other = names
    found = made(
        [dict(zip((f"{one}.a", f"{two}.b"), scores))],
        1,
        {"name": other, "data": {"type": one}},
        unseen_domains=[f"{two}.b"],
        class_names=[one, two],
        encoder=other,
        notes=[one, two],
        screening=Screening([Finding(1, "update", two, 1, 2, True)], [one]),
        privacy=Privacy("sums", [one], [two], 5, "sum", [one], [two], [other], one),
        pooled=PooledRows(2, 90, 4000),
    )
    command = ["ggeur", *names]
    final = replace(found.final, scored="clients")
    made_by = replace(found.provenance, command=command)
    return replace(found, final=final, provenance=made_by)


def comparison_of(names) -> Comparison:
    """Three rows of two seeds, of a study where all names are such."""
    one, two, other = names
    first, second, third = (f"{n}{i}" for i, n in enumerate(names))
    axes = [Axis(f"{one} axis", [first, second, third])]
    rows, folder = {}, Path(f"/runs/{other[:200]}")
    for point, mean in zip((first, second, third), (0.7, 0.5, 0.6)):
        scores = {seed: (mean, seed / 9) for seed in (1, 2)}
        runs = {s: FoundRun(folder, run_of(names, both)) for s, both in scores.items()}
        rows[point] = Row(point, {f"{one} axis": point}, runs)
    domains = next(iter(rows[first].runs.values())).results.domains
    table = Table(
        two, domains, domains[1:], [one, two], axes, [], rows,
        dict.fromkeys(rows, first), [other or "none"],
    )  # fmt: skip
    tried = [Tried({one: two}, None, one)]
    study = Study(
        one, two, axes, [1, 2],
        tuned=[Tuned({f"{one} axis": first}, 1, two, tried, {})],
        failed=[Failed({f"{one} axis": second}, 2, f"{two}\n{other}")],
    )  # fmt: skip
    return Comparison([table], [study], [one or "none"])


def elements(page: str) -> list[tuple]:
    """The elements of a page, with the names of their attributes."""
    return [(tag, *attributes) for tag, attributes in parsed(page).elements]


def marks(text: str) -> list[str]:
    """What Markdown makes of a text, but for words: its blocks, and marks in lines."""
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    inline = itertools.chain(*(block.children or [] for block in blocks))
    kinds = ("text", "softbreak", "text_special", "code_inline")
    return [block.type for block in blocks] + [
        token.type for token in inline if token.type not in kinds
    ]


def is_quiet(cell: str) -> bool:
    """Whether a spreadsheet takes a cell for what it says."""
    first = cell.lstrip()[:1]
    return (
        not first
        or first not in "=+-@\uff1d\uff0b\uff0d\uff20"
        or bool(NUMBER.fullmatch(cell))
    )


def line_count(text: str) -> int:
    return len(text.splitlines())


def quiet_rows(text: str) -> int:
    rows = list(csv.reader(io.StringIO(text)))
    return sum(all(map(is_quiet, row)) for row in rows)


def rules(text: str) -> int:
    """Notes are wrapped, behind an indent: all else has the lines that it had."""
    return sum(set(line) == {"-"} for line in text.splitlines())


#: What is made with names, and what these change nothing of.
SINKS = {
    "table of a run": (lambda n: results_table(run_of(n)), line_count),
    "run in a notebook": (lambda n: results_html(run_of(n)), elements),
    "terminal": (
        lambda n: comparison_of(n).to_text(),
        lambda text: (rules(text), text.count("\n\n")),
    ),
    "csv": (
        lambda n: comparison_of(n).to_csv(),
        lambda text: (line_count(text), quiet_rows(text)),
    ),
    "markdown": (
        lambda n: comparison_of(n).to_markdown(),
        lambda text: (marks(text), line_count(text)),
    ),
    "latex": (lambda n: comparison_of(n).to_latex(), line_count),
    "page": (
        lambda n: comparison_of(n).to_html(),
        lambda text: (elements(text), line_count(text)),
    ),
}


@pytest.mark.parametrize("sink", SINKS)
@SOME
@given(names=three_names)
def test_names_add_nothing_and_hide_nothing(sink, names):
    make, shape = SINKS[sink]
    found = make(names)
    assert shape(found) == shape(make(PLAIN))
    assert not hidden_in(found)
    found.encode()


@SOME
@given(three_names)
def test_the_table_of_a_run_is_not_wide(names):
    rows, _, remarks = results_table(run_of(names)).partition("\n* unseen")
    assert max(map(len, rows.splitlines())) < NAME + 200
    assert max(map(len, remarks.splitlines())) <= LINE


def test_numbers_and_names_in_csv_are_what_they_were():
    cells = [-0.5, -3, 1e-300, None, "", *ORDINARY, "-0.1", "+1e-5", "a=b", "1-2"]
    assert next(csv.reader([csv_text([cells])])) == [
        "" if cell is None else str(cell) for cell in cells
    ]
    assert csv_text([["=1+1", "-x", "@a"]]) == "'=1+1,'-x,'@a\n"


@pytest.mark.parametrize("text", [t for t in WORST if t])
def test_markdown_shows_what_was_meant(text):
    for before in ("- ", "## ", "| a | "):
        (shown,) = [
            "".join(child.content for child in block.children)
            for block in MarkdownIt("commonmark").parse(f"{before}{markdown(text)}")
            if block.type == "inline"
        ]
        whole = printable(text, 10_000).strip()
        assert shown == (f"| a | {whole}" if before.startswith("|") else whole)


@given(foreign)
def test_latex_has_no_command_of_others(text):
    shown = escaped(text)
    assert shown.isascii()
    assert "\n" not in shown
    # All that is left of a backslash is a command of ours.
    accents = r"[`'^~\"=.uvHrcdk]\{[A-Za-z]\}"
    letters = r"(text[a-z]+|ss|ae|AE|o|O|l|L|oe|i)\{\}"
    bare = re.sub(rf"\\({accents}|{letters}|[_%&#${{}}])", "", shown)
    bare = re.sub(r"\$\\[a-zA-Z]+\$|\$-\$", "", bare)
    assert not set(bare) & set('\\%&#$_^~<>|"')


def test_figures_are_drawn_whatever_they_name(tmp_path):
    names = ("\ud800\n$\\frac", "x" * 100_000, "<script>\x1b--></script>")
    comparison = comparison_of(names)
    pictures = figures(comparison, "one")
    page = comparison.to_html(pictures)
    assert not {tag for tag, *_ in elements(page)} & {"script", "img", "iframe"}
    assert not hidden_in(page)
    for picture in pictures:
        assert max(picture.figure.get_size_inches()) < 30
        assert render(picture, "pdf")
    draw_curve(run_of(names), tmp_path / "curve.png")
    texts = dict.fromkeys(("title", "row_title", "column_title"), names[1])
    path = tmp_path / "map.png"
    draw_heatmap(path, np.eye(3), names, names, scale_title="rows", **texts)
    assert path.stat().st_size < 10**6


@given(foreign, st.integers(14, 60))
def test_a_label_is_one_short_line(text, most):
    assert len(shortened(text, most)) <= most
    assert not hidden_in(shortened(text, most).replace("\n", "\x00"))
