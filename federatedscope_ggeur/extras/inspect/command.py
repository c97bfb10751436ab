"""``ggeur inspect``: draws clients' rows and the similarity of domains' shapes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.keys import RunKeys, read
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import withheld
from federatedscope_ggeur.commands import add_options, config_parser
from federatedscope_ggeur.commands.console import shown_on_console
from federatedscope_ggeur.data import DataSet, Embeddings
from federatedscope_ggeur.engines.run import divide, load_data_set
from federatedscope_ggeur.errors import ConfigError, listed, refusing
from federatedscope_ggeur.federation.advice import withheld_text
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.geometry import GeometricShape, Statistics, shape_similarity
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.printable import file_name, printable, say
from federatedscope_ggeur.reporting import new_run_folder
from federatedscope_ggeur.reporting.tables import csv_text, read_formats, text_table

from .heatmaps import draw_heatmap

_MOST_NAMES = 12
_MOST_PICTURED = 20  # classes, of two characters each
_BARS = "·▁▂▃▄▅▆▇█"
#: The columns of `client_table` that hold no numbers.
CLIENT_TABLE_LEFT = (1, 4)

#: The number of directions that Eq. 3 compares, and so the largest similarity.
TOP = 5
#: With more clients, the text sums them up, and there is no picture of them.
MOST_CLIENTS = 40

_OPTIONS = """
--out FOLDER: the folder for the files (default: a new folder below the config's outdir)
--reference DOMAIN: the domain with which the others are compared (default: the first)
--format FORMATS: the formats of the pictures: svg, pdf and png, separated by commas
  (default: png)
"""


def inspect(arguments: Sequence[str]) -> int:
    """Draw clients' rows and the similarity of domains' shapes; print a summary."""
    parser = config_parser("inspect", "All numbers are also written as CSV.")
    add_options(parser, _OPTIONS, reference={"default": ""}, format={"default": "png"})
    options = parser.parse_intermixed_args(arguments)
    formats = read_formats(options.format)
    cfg = load_config(options.cfg, options.settings)
    with shown_on_console(cfg.verbose > 0):
        dataset = load_data_set(cfg)
    held = Holdings.of(divide(cfg, dataset).clients, dataset.num_classes)
    # The matrices are small: more threads would only wait for each other.
    with torch_threads(read(cfg.ggeur, RunKeys).num_threads):
        alike = similarities(dataset, options.reference)
    files = {"samples.csv": holdings_csv(held, dataset.class_names)}
    if alike:
        files["similarity.csv"] = similarities_csv(alike, dataset.class_names)
    names = [
        f"similarity_{i}_{file_name(p.second, 50)}" for i, p in enumerate(alike, 1)
    ]
    few = len(held.numbers) <= MOST_CLIENTS
    drawn = [*["samples"] * few, *names]
    pictures = [f"{name}.{form}" for name in drawn for form in formats]
    folder = _folder(cfg, options.out, [*files, *pictures])
    for name, text in files.items():
        write_atomically(folder / name, text)
    for suffix in formats if few else ():
        _draw_holdings(folder / f"samples.{suffix}", held, dataset.class_names)
    # One scale, so that the pictures can be compared.
    largest = max((np.nanmax(pair.values, initial=0.0) for pair in alike), default=0.0)
    for name, pair in zip(names, alike):
        for suffix in formats:
            file = folder / f"{name}.{suffix}"
            _draw_similarities(file, pair, dataset.class_names, float(largest))
    say(*_about_holdings(held, dataset.class_names))
    demands = demands_of(cfg)
    lacking = withheld(demands, held, demands.min_samples)
    if lacking and lacking.pairs:
        say(withheld_text(lacking))
    say(*_about_similarities(alike, dataset))
    say(*(folder / name for name in sorted([*files, *pictures])))
    return 0


def _folder(cfg, out: str | None, names: Sequence[str]) -> Path:
    if out is None:
        return new_run_folder(cfg.outdir, f"inspect_{cfg.expname or cfg.data.type}")
    folder = Path(out)
    taken = [name for name in names if os.path.lexists(folder / name)]
    if taken:
        raise ConfigError(
            f"--out: '{folder}' already holds {', '.join(taken)}; nothing was written. "
            "Name another folder."
        )
    with refusing(f"--out: cannot make the folder '{folder}'"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _draw_holdings(path: Path, held: Holdings, class_names: Sequence[str]) -> None:
    draw_heatmap(
        path,
        held.counts,
        [f"{number} {domain}" for number, domain in zip(held.numbers, held.domains)],
        class_names,
        title="rows to train on, by client and class",
        row_title="client",
        column_title="class",
        scale_title="rows",
    )


def _draw_similarities(
    path: Path,
    pair: Similarities,
    class_names: Sequence[str],
    largest: float,
) -> None:
    draw_heatmap(
        path,
        pair.values,
        class_names,
        class_names,
        title=f"similarity of shapes, {pair.first} and {pair.second}",
        row_title=f"class in {pair.first}",
        column_title=f"class in {pair.second}",
        scale_title=f"similarity (Eq. 3), at most {TOP}",
        largest=largest,
    )


def _about_holdings(held: Holdings, class_names: Sequence[str]) -> list[str]:
    many = len(held.numbers) > MOST_CLIENTS
    table = domain_table(held) if many else client_table(held, class_names)
    cells = [list(map(printable, row)) for row in table]
    lines = text_table(cells, left=[0] if many else CLIENT_TABLE_LEFT)
    empty = [str(k) for k, rows in zip(held.numbers, held.counts) if not rows.any()]
    if empty:
        lines.append(f"clients without rows: {listed(empty, _MOST_NAMES)}")
    if many:
        lines.append("a line for each client: samples.csv")
    nobody = [c for c, rows in zip(class_names, held.counts.T) if not rows.any()]
    if nobody:
        lines.append(f"classes that no client holds: {listed(nobody, _MOST_NAMES)}")
    return lines


def _about_similarities(alike: Sequence[Similarities], dataset) -> list[str]:
    if not alike:
        return ["there is only one domain, so no shapes are compared"]
    lines = [
        f"similarity of shapes, 0 to {TOP}, of all training rows of a domain "
        f"(directions at random: {chance(dataset.dim):.2f}):"
    ]
    for pair in alike:
        both = f"{pair.first} and {pair.second}"
        same, other = ("-" if v is None else f"{v:.2f}" for v in pair.averages())
        lines.append(f"  {both}: same class {same}, other classes {other}")
        if pair.left_out:
            names = [dataset.class_names[c] for c in pair.left_out]
            lines.append(
                f"    left out, because they have fewer than {TOP} directions in one "
                f"of the two: {listed(names, _MOST_NAMES)}"
            )
    return lines


def holdings_csv(held: Holdings, class_names: Sequence[str]) -> str:
    """A CSV text with each client's number, domain, rows, and rows of each class."""
    lines = (
        [number, domain, counts.sum(), *counts.tolist()]
        for number, domain, counts in zip(held.numbers, held.domains, held.counts)
    )
    return csv_text([["client", "domain", "rows", *class_names], *lines])


def client_table(held: Holdings, class_names: Sequence[str]) -> list[tuple[str, ...]]:
    """A table with a line for each client, and a picture of few classes."""
    pictured = len(class_names) <= _MOST_PICTURED
    initials = " ".join(printable(name)[:1] for name in class_names)
    most = held.counts.max(initial=1)
    return [("client", "domain", "rows", "classes", *[initials] * pictured)] + [
        (
            str(number),
            domain,
            str(counts.sum()),
            f"{(counts > 0).sum()} of {len(counts)}",
            *[" ".join(_bar(n / most) for n in counts)] * pictured,
        )
        for number, domain, counts in zip(held.numbers, held.domains, held.counts)
    ]


def _bar(share: float) -> str:
    """A character as tall as `share` of the most rows; a dot for no rows."""
    return _BARS[math.ceil(share * (len(_BARS) - 1))]


def domain_table(held: Holdings) -> list[tuple[str, ...]]:
    """A table with a line for each domain, and a line for all if there are several.

    A line has the number of clients, and how many of them have no rows. It also has the
    least, median and most rows and classes of a client.
    """
    rows, classes = held.counts.sum(1), (held.counts > 0).sum(1)
    domains = np.array(held.domains, dtype=object)
    names = list(dict.fromkeys(held.domains))
    groups = [(name, domains == name) for name in names]
    if len(names) > 1:
        groups.append(("all", np.ones(len(domains), dtype=bool)))
    head = ("domain", "clients", "rows: min", "median", "max", "classes: min")
    return [(*head, "median", "max", "without rows")] + [
        (
            name,
            str(mine.sum()),
            *_spread(rows[mine]),
            *_spread(classes[mine]),
            str((rows[mine] == 0).sum()),
        )
        for name, mine in groups
    ]


@dataclass(frozen=True, eq=False)
class Similarities:
    """The similarity of two domains' shapes, for every pair of classes.

    Attributes
    ----------
    first, second : str
        The two domains.
    values : float array of shape [C, C]
        The similarity (Eq. 3), from 0 to 5, of class c of `first` (row) and class c' of
        `second` (column). NaN if one of the two classes is left out.
    left_out : list of int
        Classes that have fewer than five directions in either domain.
    """

    first: str
    second: str
    values: np.ndarray
    left_out: list[int]

    def averages(self) -> tuple[float | None, float | None]:
        """The mean similarity of equal classes, and that of different classes.

        A mean over no pairs is None.
        """
        diagonal = np.eye(len(self.values), dtype=bool)
        return _mean(self.values[diagonal]), _mean(self.values[~diagonal])


def similarities(dataset: DataSet, reference: str = "") -> list[Similarities]:
    """Compare the shapes of classes in one domain with those in the other domains.

    A shape is computed from all training rows of a domain, before they are split over
    clients. The paper's Figure 6 (MNIST with USPS, SVHN and SYN) does the same. Eq. 3
    adds up five directions, so a class with fewer directions is left out. Five
    directions need six rows. Shapes are those of covariances, as in augmentation and in
    Eq. 4.

    Parameters
    ----------
    dataset : DataSet
    reference : str
        The domain with which the others are compared; "" means the first.

    Raises
    ------
    ConfigError
        There is no such domain.
    """
    names = [domain.name for domain in dataset.domains]
    reference = reference or names[0]
    if reference not in names:
        raise ConfigError(
            f"--reference: there is no domain '{reference}'; take one of "
            f"{', '.join(names)}"
        )
    if len(names) == 1:  # no shapes needed, and they take seconds
        return []
    shapes = {d.name: _shapes(d.train, dataset.num_classes) for d in dataset.domains}
    return [
        _compare(reference, shapes[reference], name, shapes[name])
        for name in names
        if name != reference
    ]


def similarities_csv(pairs: Iterable[Similarities], class_names: Sequence[str]) -> str:
    """A CSV text with a line for each compared pair of classes."""
    lines = (
        [p.first, class_names[i], p.second, class_names[j], float(p.values[i, j])]
        for p in pairs
        for i, j in np.argwhere(~np.isnan(p.values)).tolist()
    )
    names = ["domain", "class", "other_domain", "other_class", "similarity"]
    return csv_text([names, *lines])


def chance(dim: int) -> float:
    """The approximate similarity (Eq. 3) of random directions in `dim` dimensions."""
    return TOP * math.sqrt(2 / (math.pi * dim))


def _shapes(rows: Embeddings, num_classes: int) -> list[GeometricShape | None]:
    features = rows.features.float()  # pixels are bytes
    statistics = Statistics.from_embeddings(features, rows.labels, num_classes)
    shapes: list[GeometricShape | None] = [None] * num_classes
    for c in statistics.classes:
        shape = GeometricShape.from_statistics(statistics, c)
        if shape.rank >= TOP:
            shapes[c] = GeometricShape(
                shape.eigenvalues[:TOP], shape.eigenvectors[:, :TOP].clone()
            )
    return shapes


def _compare(
    first: str,
    a: Sequence[GeometricShape | None],
    second: str,
    b: Sequence[GeometricShape | None],
) -> Similarities:
    values = np.full((len(a), len(b)), np.nan)
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            if one is not None and other is not None:
                values[i, j] = shape_similarity(one, other, TOP)
    left_out = [c for c, pair in enumerate(zip(a, b)) if None in pair]
    return Similarities(first, second, values, left_out)


def _spread(values: np.ndarray) -> tuple[str, str, str]:
    return str(values.min()), f"{np.median(values):g}", str(values.max())


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
