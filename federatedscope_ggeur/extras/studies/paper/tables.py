"""Read the paper's tables, and find a run's place in one."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from federatedscope_ggeur.errors import ConfigError

_FOLDER = Path(__file__).parent / "tables"
_ABOUT = yaml.safe_load((_FOLDER / "about.yaml").read_text("utf-8"))
#: The tables, with what is known about each.
_TABLES: Mapping[str, Mapping[str, Any]] = _ABOUT["tables"]
PAPER_TABLES = tuple(_TABLES)
_BATCH = "Table 8; App. C says 64 for all sets"
#: The settings of a head that is trained on embeddings.
_HEAD = {"ggeur.text.model": "", "ggeur.closed_form": "none", "ggeur.network.name": ""}


@dataclass(frozen=True)
class Stated:
    """The value that the paper states for a setting.

    Attributes
    ----------
    value : Any
        The value. None if the paper does not state it.
    source : str
        The place in the paper, with remarks.
    """

    value: Any
    source: str = "the paper does not say"


@dataclass(frozen=True)
class PaperTable:
    """A table of the GGEUR paper as data.

    Attributes
    ----------
    name : str
        ``"table1"`` to ``"table11"``.
    title, source : str
    unit : str
        ``"%"``, ``"s"`` (Table 11), or ``""`` (settings: Tables 8 and 9).
    columns : list of str
        One of three kinds. Domains as this package's readers call them, then ``"AVG"``
        and ``"STD"``. Or data set and beta, or data set and number of clients. Or keys
        of a config.
    rows : dict of str to dict of str to float
        The printed figures of each method by column, in percent. "+ GGEUR" rows begin
        with the name of the base. A column that a row lacks (Table 9) is left out.
    setting : dict of str to Stated
        The settings that the paper states, by key of a config, or by ``"seeds"`` and
        ``"score"``. `Stated.value` is None if the paper does not state a value.
    column_settings, row_settings : dict of str to dict
        The settings, by key, that distinguish the runs of a column or row from others.
    column_said, row_said : dict of str to dict of str to Stated
        The settings that the paper states for one column or row, as in `setting`.
    notes : list of str
        Remarks for a reader, such as figures that contradict each other.
    """

    name: str
    title: str
    source: str
    columns: list[str]
    rows: dict[str, dict[str, float]]
    setting: dict[str, Stated]
    unit: str = ""
    column_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    row_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    column_said: dict[str, dict[str, Stated]] = field(default_factory=dict)
    row_said: dict[str, dict[str, Stated]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def row_of(self, config: Mapping[str, Any]) -> str | None:
        """The row that a run with this `config` (as in results.json) belongs to.

        ``ggeur.augmentation: none`` is the baseline, and so is ``ggeur.steps: []``.
        """
        return _only(self.row_settings, _plain(config))

    def column_of(self, config: Mapping[str, Any]) -> str | None:
        """The column that states the AVG of a run with this `config`.

        None if the columns are domains.
        """
        return _only(self.column_settings, config)


def paper_table(name: str) -> PaperTable:
    """The table called `name`, one of `PAPER_TABLES`.

    Raises
    ------
    ConfigError
        There is no such table.
    """
    if name not in PAPER_TABLES:
        raise ConfigError(
            f"the GGEUR paper has no '{name:.100}'; its tables are "
            f"{', '.join(PAPER_TABLES)}"
        )
    return _load(name)


@cache
def _load(name: str) -> PaperTable:
    about = _TABLES[name]
    columns, rows = _read(name)
    table = PaperTable(
        name=name,
        title=about["title"],
        source=f"GGEUR, CVPR 2025, arXiv 2503.06457, Table {name[5:]}",
        columns=columns,
        rows=rows,
        setting=_stated(about.get("settings", {})),
        notes=about.get("notes", []),
    )
    if "skew" not in about:
        return table
    by_column = {column: _column(name, column) for column in columns}
    sets = [data_set for data_set, _ in by_column.values()]
    table8 = _read("table8")[1]
    in_table = {data_set: table8[data_set] for data_set in dict.fromkeys(sets)}
    said = _said_of(name, in_table)
    rate, column_said = "train.optimizer.lr", {}
    if rate not in said:
        column_said = {
            column: {rate: Stated(table8[data_set][rate], "Table 8")}
            for column, data_set in zip(columns, sets)
        }
    if len(in_table) == 1:
        data_type = _ABOUT["data_types"][sets[0]]
        said["data.type"] = Stated(data_type, "the table's title")
    return replace(
        table,
        unit=about.get("unit", "%"),
        setting=said,
        column_settings={c: settings for c, (_, settings) in by_column.items()},
        row_settings={row: _row(name, row) for row in rows},
        column_said=column_said,
        row_said=_row_said(rows),
    )


def _stated(settings: Mapping[str, list | None]) -> dict[str, Stated]:
    return {k: Stated(*(said or [None])) for k, said in settings.items()}


def _said_of(name: str, sets: Mapping[str, Mapping[str, float]]) -> dict[str, Stated]:
    """The settings that hold for a whole table.

    `sets` has the rows of Table 8 for the data of this table.
    """
    about, groups = _TABLES[name], _ABOUT["settings"]
    own = about.get("settings", {})
    said = _stated({**groups["always"], **groups[about["skew"]], **own})
    for key in next(iter(sets.values())):
        values = {row[key] for row in sets.values()}
        if "." in key and len(values) == 1:
            value = values.pop()
            source = _BATCH if key == "dataloader.batch_size" else "Table 8"
            said[key] = Stated(int(value) if value.is_integer() else value, source)
    if name == "table10":
        del said["federate.client_num"]  # the table varies it
    said["ggeur.encoder.image_size"] = Stated(224, "Table 8")
    return said


def stated_at(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted `key` in a run's `config`; None if there is none.

    A key below ``data.splitter_args`` is looked up in the dicts of that list.
    """
    value: Any = config
    for part in key.split("."):
        if isinstance(value, (list, tuple)):
            value = next((v for v in value if isinstance(v, Mapping) and part in v), {})
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _read(name: str) -> tuple[list[str], dict[str, dict[str, float]]]:
    with open(_FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
        (_, *columns), *lines = csv.reader(file)
    rows = {
        row: {c: float(cell) for c, cell in zip(columns, cells) if cell}
        for row, *cells in lines
    }
    return columns, rows


def _column(name: str, column: str) -> tuple[str, dict[str, Any]]:
    """A column's data set, and the settings that distinguish its runs from others."""
    if "data_set" in _TABLES[name]:
        return _TABLES[name]["data_set"], {}
    data_set, value = column.split(" ")
    where = {"data.type": _ABOUT["data_types"][data_set]}
    if name == "table10":
        return data_set, {**where, "federate.client_num": int(value)}
    return data_set, {**where, "data.splitter_args.alpha": float(value)}


def _row(name: str, row: str) -> dict[str, Any]:
    """The settings that distinguish a run of this row from others."""
    own = _methods().get(row)
    if own is not None and "ggeur.base_method" not in own:  # uses CLIP's text side
        return own
    base, clip, added, steps = re.fullmatch(
        r"(\S+)( \(CLIP\+MLP\))?( \+ GGEUR(?: \((.*)\))?)?", row
    ).groups()
    settings: dict[str, Any] = {**_HEAD, **_methods()[base]}
    if clip is None:
        settings["ggeur.network.name"] = _TABLES[name]["network"]
    if "ggeur.augmentation" not in settings:
        both = "data_set" in _TABLES[name] and steps != "Step 1"
        settings["ggeur.augmentation"] = "ggeur"
        settings["ggeur.steps"] = ([1, 2] if both else [1]) if added else []
    return settings


@cache
def _methods() -> dict[str, dict[str, str]]:
    """The settings of each of the paper's methods."""
    methods: dict[str, dict[str, str]] = {}
    with open(_FOLDER / "methods.csv", newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            methods.setdefault(line["method"], {})[line["key"]] = line["value"]
    return methods


def _row_said(rows) -> dict[str, dict[str, Stated]]:
    """The settings of Table 9 for the rows of its methods, and for closed forms."""
    table9, form = _read("table9")[1], "ggeur.closed_form"
    by_row: dict[str, dict[str, Stated]] = {}
    for row in rows:
        own = table9.get(row.split(" ")[0], {})
        by_row[row] = {key: Stated(value, "Table 9") for key, value in own.items()}
        if form in _methods().get(row, {}):
            by_row[row][form] = Stated(_methods()[row][form], "the row's name")
    return {row: said for row, said in by_row.items() if said}


def _plain(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`config` with all ways to write the baseline turned into one."""
    own = config.get("ggeur")
    if not isinstance(own, Mapping):
        return config
    network = stated_at(own, "network.name")
    if own.get("augmentation") == "none" or (
        network and own.get("augmentation") == "ggeur"
    ):
        own = {**own, "augmentation": "ggeur", "steps": []}
    return {**config, "ggeur": own}


def _only(known: Mapping[str, Mapping[str, Any]], config) -> str | None:
    names = [
        name
        for name, settings in known.items()
        if settings and all(_same(stated_at(config, k), v) for k, v in settings.items())
    ]
    return names[0] if len(names) == 1 else None


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(value, (list, tuple)) and sorted(value) == wanted
    # A run without the extra that has the setting lacks it.
    return value == wanted or (value is None and wanted == "")
