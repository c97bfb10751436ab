"""Reading the tables, checking their arithmetic, and finding a run's place in one."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting.paper.paper_settings import (
    TABLE_8,
    TABLE_9,
    Stated,
    said_of,
    stated_at,
)

_FOLDER = Path(__file__).parent / "tables"
_PAPER = "GGEUR, CVPR 2025, arXiv 2503.06457"
#: Printed figures have two decimals: the mean of four may be off by 0.005, and what is
#: printed of it by as much again; a deviation by a little more, divided by 3.
_ROUNDING = 0.0112
_TITLES = {
    "table1": "CIFAR-100 and Tiny-ImageNet, label skew",
    "table2": "CIFAR-10 and CIFAR-100, severe label skew",
    "table3": "Tiny-ImageNet, severe label skew",
    "table4": "Digits, domain skew",
    "table5": "Office-Caltech, domain skew",
    "table6": "PACS, domain skew",
    "table7": "Office-Home-LDS, label and domain skew (beta 0.1)",
    "table8": "configurations of the data sets",
    "table9": "hyper-parameters of the methods",
    "table10": "CIFAR-10 (beta 0.1) with many clients",
    "table11": "training time a round on Digits, in seconds",
}
PAPER_TABLES = tuple(_TITLES)
#: Tables without runs.
_SETTINGS = ("table8", "table9")
_DOMAINS = {
    "table4": ("Digits", ("MNIST", "USPS", "SVHN", "SYN")),
    "table5": ("Office-Caltech", ("Am", "Ca", "D", "W")),
    "table6": ("PACS", ("P", "AP", "Ct", "Sk")),
    "table7": ("Office-Home", ("A", "C", "P", "R")),
}
_DATA_TYPES = {
    "CIFAR-10": "cifar10@ggeur",
    "CIFAR-100": "cifar100@ggeur",
    "Tiny-ImageNet": "tiny_imagenet@ggeur",
    "Digits": "digits@ggeur",
    "Office-Caltech": "office_caltech@ggeur",
    "PACS": "pacs@ggeur",
    "Office-Home": "office_home@ggeur",
}
#: The networks of the rows without CLIP, which the paper leaves unnamed, in the
#: benchmark that its App. C follows.
_NETWORKS = {"table4": "resnet18", "table5": "resnet34", "table6": "resnet34"}
#: Of a head that is trained on embeddings.
_HEAD = {
    "ggeur.text.model": "",
    "ggeur.closed_form": "none",
    "ggeur.network.name": "",
}
_NOTES = {
    "table1": [
        "Zero-shot CLIP is printed once for each data set: it knows no clients.",
    ],
    "table4": [
        "The rows without CLIP name no network; some show runs near divergence.",
    ],
    "table5": [
        "The rows without CLIP name no network.",
        "FedProto (CLIP+MLP) has the same six figures as FedAvg (CLIP+MLP).",
        "STD is a sample deviation (divided by 3) here, in the other tables a "
        "population one (divided by 4), as this package has it: its figures are "
        "about 1.155 times as large.",
    ],
    "table6": [
        "The rows without CLIP name no network; some show runs near divergence.",
        "FedOPT (CLIP+MLP) has the same six figures as FedAvg (CLIP+MLP).",
    ],
    "table10": [
        "The gain printed for K = 300 is 7.84; its figures differ by 7.48.",
    ],
    "table11": [
        "The paper has methods side by side; here each has its rows.",
        "The paper does not say on which machine.",
    ],
}


@dataclass(frozen=True)
class Doubt:
    """A printed figure that the other figures of its row contradict.

    Attributes
    ----------
    row, column : str
    printed, worked_out : float
        The second from the row's domains, which are printed to 0.01.
    """

    row: str
    column: str
    printed: float
    worked_out: float


@dataclass(frozen=True)
class PaperTable:
    """A table of the GGEUR paper.

    Attributes
    ----------
    name : str
        ``"table1"`` to ``"table11"``.
    title, source : str
    unit : str
        ``"%"``, ``"s"`` (Table 11), or ``""`` (settings: Tables 8 and 9).
    columns : list of str
        Domains as this package's readers call them, then ``"AVG"`` and ``"STD"``; or
        data set and beta, data set and number of clients; or keys of a config.
    labels : dict of str to str
        What the paper prints over each column.
    rows : dict of str to dict of str to float
        For each method its figures by column, as printed: percent. "+ GGEUR" rows have
        the base's name in front. A column that a row lacks (Table 9) is left out.
    setting : dict of str to Stated
        What the paper says of the settings, by key of a config or by a word of its own
        (``"seeds"``, ``"score"``); `Stated.value` is None where it does not say.
    column_settings, row_settings : dict of str to dict
        Settings, by key, that tell a run in this column or row from those in others.
    column_said, row_said : dict of str to dict of str to Stated
        As `setting`, of one column or row alone.
    std_ddof : int or None
        What STD was divided by, less than the number of domains: 0 or 1.
    doubts : list of Doubt
    notes : list of str
        What else a reader should know.
    """

    name: str
    title: str
    source: str
    unit: str
    columns: list[str]
    labels: dict[str, str]
    rows: dict[str, dict[str, float]]
    setting: dict[str, Stated]
    column_settings: dict[str, dict[str, Any]]
    row_settings: dict[str, dict[str, Any]]
    column_said: dict[str, dict[str, Stated]] = field(default_factory=dict)
    row_said: dict[str, dict[str, Stated]] = field(default_factory=dict)
    std_ddof: int | None = None
    doubts: list[Doubt] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row_of(self, config: Mapping[str, Any]) -> str | None:
        """The row that a run with this `config` (as in results.json) belongs to.

        The baseline is the same by ``ggeur.augmentation: none`` as by no steps.
        """
        return _only(self.row_settings, _plain(config))

    def column_of(self, config: Mapping[str, Any]) -> str | None:
        """The column that all of such a run's AVG belongs to; None of domains."""
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
            f"the GGEUR paper's tables are {', '.join(PAPER_TABLES)}; '{name:.100}' is "
            "none of them"
        )
    return _load(name)


@cache
def _load(name: str) -> PaperTable:
    columns, rows = _read(name)
    source = f"{_PAPER}, Table {name[5:]}"
    if name in _SETTINGS:
        labels = {column: column for column in columns}
        said = (
            {"encoder": Stated("CLIP (ViT-B/16)", TABLE_8)} if name == "table8" else {}
        )
        return PaperTable(
            name, _TITLES[name], source, "", columns, labels, rows, said, {}, {}
        )
    by_column = {column: _column(name, column) for column in columns}
    sets = [data_set for data_set, _ in by_column.values()]
    table8 = _read("table8")[1]
    in_table = {data_set: table8[data_set] for data_set in dict.fromkeys(sets)}
    said = said_of(name, in_table)
    of_columns = {column: settings for column, (_, settings) in by_column.items()}
    rate = "train.optimizer.lr"
    column_said = {}
    if rate not in said:
        column_said = {
            column: {rate: Stated(table8[data_set][rate], TABLE_8)}
            for column, data_set in zip(columns, sets)
        }
    if len(in_table) == 1:
        said["data.type"] = Stated(_DATA_TYPES[sets[0]], "the table's title")
    ddof, doubts = _arithmetic(name, columns, rows)
    return PaperTable(
        name,
        _TITLES[name],
        source,
        "s" if name == "table11" else "%",
        columns,
        _labels(name, columns),
        rows,
        said,
        of_columns,
        {row: _row(name, row) for row in rows},
        column_said,
        _row_said(rows),
        ddof,
        doubts,
        _NOTES.get(name, []),
    )


def _read(name: str) -> tuple[list[str], dict[str, dict[str, float]]]:
    with open(_FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
        (_, *columns), *lines = csv.reader(file)
    rows = {
        row: {c: float(cell) for c, cell in zip(columns, cells) if cell}
        for row, *cells in lines
    }
    return columns, rows


def _column(name: str, column: str) -> tuple[str, dict[str, Any]]:
    """The data set of a column, and what tells its runs from others."""
    if name in _DOMAINS:
        return _DOMAINS[name][0], {}
    if name == "table11":
        return "Digits", {}
    data_set, value = column.split(" ")
    where = {"data.type": _DATA_TYPES[data_set]}
    if name == "table10":
        return data_set, {**where, "federate.client_num": int(value)}
    return data_set, {**where, "data.splitter_args.alpha": float(value)}


def _labels(name: str, columns: list[str]) -> dict[str, str]:
    if name in _DOMAINS:
        labels = (*_DOMAINS[name][1], "AVG", "STD")
        return dict(zip(columns, labels))
    if name == "table11":
        return {columns[0]: "training time (s)"}
    values = [column.split(" ") for column in columns]
    if name == "table10":
        return {c: f"K = {value}" for c, (_, value) in zip(columns, values)}
    return {c: f"{data_set}, {value}" for c, (data_set, value) in zip(columns, values)}


def _row(name: str, row: str) -> dict[str, Any]:
    """What tells a run of this row from those of others."""
    own = _methods().get(row)
    if own is not None and "ggeur.base_method" not in own:  # of CLIP's text side
        return own
    base, clip, added, steps = re.fullmatch(
        r"(\S+)( \(CLIP\+MLP\))?( \+ GGEUR(?: \((.*)\))?)?", row
    ).groups()
    settings: dict[str, Any] = {**_HEAD, **_methods()[base]}
    if clip is None:
        settings["ggeur.network.name"] = _NETWORKS[name]
    if "ggeur.augmentation" not in settings:
        both = name in (*_DOMAINS, "table11") and steps != "Step 1"
        settings["ggeur.augmentation"] = "ggeur"
        settings["ggeur.steps"] = ([1, 2] if both else [1]) if added else []
    return settings


@cache
def _methods() -> dict[str, dict[str, str]]:
    """For each of the paper's methods what this package calls it."""
    found: dict[str, dict[str, str]] = {}
    with open(_FOLDER / "methods.csv", newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found.setdefault(line["method"], {})[line["key"]] = line["value"]
    return found


def _row_said(rows) -> dict[str, dict[str, Stated]]:
    """Table 9 for the rows of its methods, and the head of those in closed form."""
    table9, form = _read("table9")[1], "ggeur.closed_form"
    found: dict[str, dict[str, Stated]] = {}
    for row in rows:
        own = table9.get(row.split(" ")[0], {})
        found[row] = {key: Stated(value, TABLE_9) for key, value in own.items()}
        if form in _methods().get(row, {}):
            found[row][form] = Stated(_methods()[row][form], "the row's name")
    return {row: said for row, said in found.items() if said}


def _plain(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`config` with the baseline, and a network's, written one way."""
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
    found = [
        name
        for name, settings in known.items()
        if settings and all(_same(stated_at(config, k), v) for k, v in settings.items())
    ]
    return found[0] if len(found) == 1 else None


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(found, (list, tuple)) and sorted(found) == wanted
    return found == wanted


def _arithmetic(name: str, columns, rows) -> tuple[int | None, list[Doubt]]:
    """How STD was made, and the figures that do not follow from their row's domains."""
    if name not in _DOMAINS:
        return None, []
    doubts = {0: [], 1: []}
    for ddof, found in doubts.items():
        for row, cells in rows.items():
            domains = [cells[c] for c in columns[:-2]]
            mean = sum(domains) / len(domains)
            squares = sum((x - mean) ** 2 for x in domains)
            std = math.sqrt(squares / (len(domains) - ddof))
            for column, value in (("AVG", mean), ("STD", std)):
                if abs(value - cells[column]) > _ROUNDING:
                    found.append(Doubt(row, column, cells[column], round(value, 3)))
    ddof = min(doubts, key=lambda d: len(doubts[d]))
    return ddof, doubts[ddof]
