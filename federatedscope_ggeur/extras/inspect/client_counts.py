"""Draw one page that shows which rows each of many clients holds."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from federatedscope_ggeur.reporting.plots import shortened
from federatedscope_ggeur.reporting.tables import write_figure

_SIZE = (6.9, 6.4)  # inches: a page's width
_FONT = 8
_CHARACTERS = 18
_MOST_DOMAINS = 24  # with more domains only some have a label
_MOST_CLASSES = 26  # with more classes only some have a label
_LETTERS = 68  # class names with more letters in all are turned
_BINS = 24
_BARS = "#4A6F8A"


def draw_client_counts(
    path: str | os.PathLike,
    counts: np.ndarray,
    domains: Sequence[str],
    class_names: Sequence[str],
) -> None:
    """Draw how many rows of each class every client has, on one page.

    The upper part has a line of colour for each client, in the order of `client_order`.
    The lower part has histograms of the clients' rows and of their classes. There is
    one page for any number of clients. The ending of `path` decides the format. The
    same numbers give the same bytes.

    Parameters
    ----------
    path : path of the file
    counts : int array of shape [K, C]
    domains : sequence of str, of length K
        The domain of each client.
    class_names : sequence of str, of length C

    Raises
    ------
    ConfigError
        The file cannot be written. Then no part of the file remains.
    """
    order = client_order(counts, domains)
    figure = Figure(
        _SIZE,
        dpi=150,
        layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06),
        facecolor="white",
    )
    grid = figure.add_gridspec(2, 2, height_ratios=(4, 1))
    above = figure.add_subplot(grid[0, :])
    _draw_clients(figure, above, counts[order], [domains[k] for k in order])
    _label_classes(above, class_names)
    title = f"rows to train on of {len(counts)} clients, by class"
    above.set_title(title, fontsize=_FONT + 1)
    _draw_spread(figure.add_subplot(grid[1, 0]), counts.sum(1), "rows of a client")
    held = (counts > 0).sum(1)
    _draw_spread(figure.add_subplot(grid[1, 1]), held, "classes of a client")
    write_figure(path, figure)


def client_order(counts: np.ndarray, domains: Sequence[str]) -> list[int]:
    """Sort clients by domain, in the order of the domains' first clients.

    Within a domain they are sorted by their largest class, then by the share of that
    class. Clients without rows come last.
    """
    places = {domain: i for i, domain in enumerate(dict.fromkeys(domains))}
    totals = counts.sum(1)
    shares = counts.max(1, initial=0) / np.maximum(totals, 1)
    largest = np.where(totals > 0, counts.argmax(1), counts.shape[1])
    return sorted(
        range(len(counts)),
        key=lambda k: (places[domains[k]], largest[k], -shares[k], k),
    )


def _draw_clients(figure, axes, counts, domains: Sequence[str]) -> None:
    shown = np.ma.masked_equal(counts, 0)
    norm = LogNorm(1, max(2, int(counts.max(initial=0))))
    image = axes.imshow(
        shown, cmap="YlGnBu", norm=norm, aspect="auto", interpolation="nearest"
    )
    names, starts = np.unique(np.array(domains, dtype=object), return_index=True)
    found = sorted(zip(starts.tolist(), names.tolist()))
    ends = [start for start, _ in found[1:]] + [len(domains)]
    step = -(-len(found) // _MOST_DOMAINS)
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color="black", linewidth=0.8 if step == 1 else 0.3)
    labelled = list(zip(found, ends))[::step]
    axes.set_yticks([(start + end - 1) / 2 for (start, _), end in labelled])
    between = ", " if len(found) > _MOST_DOMAINS // 2 else "\n"
    labels = [
        f"{shortened(name, _CHARACTERS)}{between}{_clients(end - start)}"
        for (start, name), end in labelled
    ]
    axes.set_yticklabels(labels, fontsize=_FONT - 1, parse_math=False)
    axes.tick_params(axis="y", length=0)
    if step > 1:
        axes.set_ylabel(f"domain (one in {step} has a label)", fontsize=_FONT)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.015)
    bar.set_label("rows", fontsize=_FONT)
    bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=_FONT - 1)


def _clients(number: int) -> str:
    return f"{number} client{'s' if number > 1 else ''}"


def _label_classes(axes, names: Sequence[str]) -> None:
    step = -(-len(names) // _MOST_CLASSES)
    places = range(0, len(names), step)
    labels = [shortened(names[c], _CHARACTERS) for c in places]
    turned = sum(map(len, labels)) + len(labels) > _LETTERS
    axes.set_xticks(list(places))
    style = {"fontsize": _FONT - 1, "parse_math": False}
    axes.set_xticklabels(labels, rotation=90 if turned else 0, **style)
    each = f" (one in {step} has a label)" if step > 1 else ""
    axes.set_xlabel(f"class{each}", fontsize=_FONT)


def _draw_spread(axes, values: np.ndarray, title: str) -> None:
    """Draw a histogram of values of the clients, with their median."""
    low, high = int(values.min()), int(values.max())
    width = max(1, -(-(high - low + 1) // _BINS))  # whole numbers fall into bins
    edges = np.arange(low, high + width + 1, width) - 0.5
    axes.hist(values, bins=edges, color=_BARS, edgecolor="white", linewidth=0.4)
    median = float(np.median(values))
    axes.axvline(median, color="black", linewidth=1, linestyle="--")
    axes.set_title(f"median {median:g}", fontsize=_FONT - 1)
    axes.set_xlabel(title, fontsize=_FONT)
    axes.set_ylabel("clients", fontsize=_FONT)
    axes.tick_params(labelsize=_FONT - 1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
