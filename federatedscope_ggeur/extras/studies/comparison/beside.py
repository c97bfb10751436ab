"""Put the GGEUR paper's figures beside those of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.reporting.results import Results

from ..paper import PaperTable, Stated, paper_table, stated_at
from .comparison import Comparison
from .labels import as_written
from .runs import AVG, STD, Measure
from .sheets import NONE, Sheet, SheetCell, head_notes
from .table import Row, Table

_ROUND = Measure("seconds_a_round")
_ENCODER = "ggeur.encoder."
_LONGEST = 60


@dataclass(frozen=True, eq=False)
class _Place:
    """A row of our runs, and the row of the paper's table that it belongs to.

    `columns` maps a column of the paper to our measure for it.
    """

    row: Row
    paper_row: str
    columns: dict[str, Measure]


def beside_papers(comparison: Comparison) -> list[Sheet]:
    """The sheets of `beside_paper` for all paper tables that the studies name.

    If no row belongs to a table, the comparison gets a note. This happens after a trial
    of a study on other data.
    """
    sheets: list[Sheet] = []
    for name in dict.fromkeys(study.paper for study in comparison.studies):
        if not name:
            continue
        try:
            sheets += beside_paper(comparison, name)
        except DataError as error:
            comparison.notes.append(str(error).replace("--paper: ", ""))
    return sheets


def beside_paper(comparison: Comparison, name: str) -> list[Sheet]:
    """Put the paper's table `name` beside the rows of our runs that belong to it.

    Our row belongs to the paper's row with the same name, or with the name of one of
    its points. Otherwise it belongs to the paper's row with the same settings (base
    method, augmentation, steps). Columns are matched by the name of the domain, or by
    data set, alpha or number of clients.

    Returns
    -------
    list of Sheet
        A sheet of figures and differences, and a sheet of settings that differ or that
        the paper does not state.

    Raises
    ------
    ConfigError
        There is no such table, or the table has only settings.
    DataError
        No row of our runs belongs to the table.
    """
    paper = paper_table(name)
    if not paper.unit:
        raise ConfigError(
            f"--paper: {name} holds settings and no scores, so nothing can be "
            "compared; name another table"
        )
    places: list[_Place] = []
    about_heads: list[str] = []
    for table in comparison.tables:
        tried = [_place(paper, table, row) for row in table.rows.values()]
        own = [place for place in tried if place is not None]
        rows = {place.row.name: place.row for place in own}
        places += own
        about_heads += head_notes(replace(table, rows=rows))
    if not places:
        raise DataError(
            f"--paper: no row of these runs belongs to {paper.source} ({paper.title}), "
            "because data set, methods or columns "
            f"({', '.join(paper.columns)}) differ; name another table"
        )
    figures = _figures(paper, places)
    figures.notes.extend(dict.fromkeys(about_heads))
    return [figures, _settings(paper, places)]


def _place(paper: PaperTable, table: Table, row: Row) -> _Place | None:
    config = next(iter(row.runs.values())).results.config
    named = [row.name, *row.labels.values()]
    paper_row = next((name for name in named if name in paper.rows), None)
    paper_row = paper_row or paper.row_of(config)
    if paper_row is None:
        return None
    if paper.unit == "s":
        columns = {paper.columns[0]: _ROUND}
    elif "AVG" in paper.columns:
        domains = [c for c in paper.columns if c not in ("AVG", "STD")]
        if set(domains) != set(table.domains):
            return None
        columns = {d: Measure("accuracy", d) for d in domains}
        columns.update({"AVG": AVG, "STD": STD})
    else:
        column = paper.column_of(config)
        columns = {} if column is None else {column: AVG}
    columns = {c: m for c, m in columns.items() if c in paper.rows[paper_row]}
    return _Place(row, paper_row, columns) if columns else None


def _figures(paper: PaperTable, places: Sequence[_Place]) -> Sheet:
    shown = [c for c in paper.columns if any(c in place.columns for place in places)]
    rows: list[tuple[str, list[SheetCell]]] = []
    for place in places:
        printed = paper.rows[place.paper_row]
        ours, theirs, differences = [], [], []
        for column in shown:
            spread = _spread(place, column)
            given = printed.get(column) if column in place.columns else None
            ours.append(
                SheetCell(NONE) if spread is None else SheetCell(*_numbers(spread))
            )
            theirs.append(SheetCell(NONE if given is None else f"{given:.2f}"))
            both = spread is not None and given is not None
            differences.append(SheetCell(f"{spread[0] - given:+.2f}" if both else NONE))
        about = [SheetCell(str(len(place.row.runs))), SheetCell(place.row.head)]
        nothing = [SheetCell(NONE)] * len(about)
        rows.append((place.row.name, [*about, *ours]))
        rows.append((f"paper: {place.paper_row}", [*nothing, *theirs]))
        rows.append(("difference", [*nothing, *differences]))
    unit = "seconds" if paper.unit == "s" else "%"
    notes = [
        f"{paper.source}; in {unit}; ours: mean ± standard deviation over seeds; "
        "differences in the same unit, ours minus the paper's, which has no deviation"
    ]
    return Sheet(
        f"Beside the paper's Table {paper.name[5:]}",
        paper.title,
        ["row", "seeds", "head", *shown],
        rows,
        [*notes, *paper.notes],
    )


def _spread(place: _Place, column: str) -> tuple[float, float | None] | None:
    """The mean and the deviation of our runs, in the paper's unit."""
    measure = place.columns.get(column)
    spread = None if measure is None else place.row.spread(measure)
    if measure is None or spread is None:
        return None
    if measure == _ROUND:  # by the clock, which other seeds do not move
        return spread.mean, None
    return 100 * spread.mean, None if spread.sd is None else 100 * spread.sd


def _numbers(spread: tuple[float, float | None]) -> tuple[str, str]:
    mean, sd = spread
    return f"{mean:.2f}", "" if sd is None else f"± {sd:.2f}"


def _settings(paper: PaperTable, places: Sequence[_Place]) -> Sheet:
    """A sheet of the settings which the paper does not state or states differently."""
    said: dict[str, dict[str, Stated]] = {}  # by setting, then by the row of our runs
    for place in places:
        for key, one in _said(paper, place).items():
            said.setdefault(key, {})[place.row.name] = one
    rows, equal = [], 0
    for key, by_row in said.items():
        differing: dict[tuple, list[str]] = {}
        for place in places:
            one = by_row.get(place.row.name)
            if one is None:
                continue
            ours = _ours(place.row, key)
            if one.value is not None and _same(ours, one.value):
                continue
            differing.setdefault(
                (_text(one.value), _text(ours), one.source), []
            ).append(place.row.name)
        equal += not differing
        for (theirs, ours, source), names in differing.items():
            everywhere = len(names) == len(places)
            whom = "all" if everywhere else _cut(", ".join(names))
            cells = [SheetCell(text) for text in (theirs, ours, whom, source)]
            rows.append((key, cells))
    return Sheet(
        f"What differs in the setting of Table {paper.name[5:]}",
        paper.title,
        ["setting", "paper", "these runs", "rows", "where the paper says so"],
        rows,
        [f"settings that equal the paper's, not listed here: {equal}"],
    )


def _said(paper: PaperTable, place: _Place) -> dict[str, Stated]:
    """What the paper states for a row.

    If the row's embeddings are not of the runs' own encoder, its settings are left out,
    and there is one line for the encoder that made them.
    """
    said = dict(paper.setting)
    for column in place.columns:
        said.update(paper.column_said.get(column, {}))
    said.update(paper.row_said.get(place.paper_row, {}))
    if all(_embeds_images(run.results) for run in place.row.runs.values()):
        return said
    own = {key: one for key, one in said.items() if not key.startswith(_ENCODER)}
    return {"encoder": paper_table("table8").setting["encoder"], **own}


def _embeds_images(results: Results) -> bool:
    """Whether the run made its embeddings by `ggeur.encoder`, as far as is known."""
    from federatedscope_ggeur.data import is_image_type  # imports torch

    try:
        return is_image_type(str(stated_at(results.config, "data.type")))
    except ConfigError:
        return False


def _ours(row: Row, key: str) -> Any:
    """The value of a setting in the row's runs; a list if there are several values."""
    if key == "seeds":
        return len(row.runs)
    values = []
    for run in row.runs.values():
        if key == "score":
            value = _score(run.results)
        elif key == "encoder":
            value = run.results.encoder
        else:
            value = stated_at(run.results.config, key)
        if value not in values:
            values.append(value)
    return values[0] if len(values) == 1 else values


def _score(results: Results) -> str:
    words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
    if results.final.head != "trained":
        return f"of the head that is left ({results.final.head.replace('_', ' ')})"
    rounds = len(results.final.rounds)
    return f"mean of the last {words.get(rounds, rounds)} rounds"


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours.lower() == theirs.lower()
    return ours == theirs


def _text(value: Any) -> str:
    return "not said" if value is None else _cut(str(as_written(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
