"""Figures as files: PNG, or SVG and PDF for print."""

from __future__ import annotations

import io
import os
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.reporting.plots import write_png

FORMATS = ("svg", "pdf", "png")
_STYLE = {
    "svg.fonttype": "path",  # the same letters everywhere
    "svg.hashsalt": "federatedscope-ggeur",  # the same names in every run
    "pdf.fonttype": 42,
}


def read_formats(text: str) -> list[str]:
    """``"svg,png"`` as a list, each format once.

    Raises
    ------
    ConfigError
        One of them is none of `FORMATS`.
    """
    formats = list(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ConfigError(
            f"--format: takes {', '.join(FORMATS)}, with commas between; got "
            f"{shown(unknown[0])}"
        )
    return formats


def write_figure(path: str | os.PathLike, figure: Figure) -> None:
    """Write `figure` in the format that the ending of `path` names.

    The same figure gives the same bytes.

    Raises
    ------
    ConfigError
        If `path` cannot be written; nothing is left behind.
    """
    kind, file = Path(path).suffix[1:], io.BytesIO()
    if kind == "png":
        write_png(path, FigureCanvasAgg(figure))
        return
    with matplotlib.rc_context(_STYLE):
        if kind == "svg":
            unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            FigureCanvasSVG(figure).print_svg(file, metadata=unsaid)
        else:
            unsaid = dict.fromkeys(("CreationDate", "Creator", "Producer"))
            FigureCanvasPdf(figure).print_pdf(file, metadata=unsaid)
    write_atomically(path, file.getvalue())
