"""Figures as files: PNG, or SVG and PDF for print."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.files import write_atomically

_STYLE = {
    "svg.fonttype": "path",  # the same letters everywhere
    "svg.hashsalt": "federatedscope-ggeur",  # the same names in every run
    "pdf.fonttype": 42,
    # Whatever a user's own matplotlibrc says.
    "savefig.bbox": None,
    "savefig.dpi": "figure",
    "savefig.facecolor": "auto",
}
#: What matplotlib would write into a file about its maker and its date.
_UNSAID = {
    "svg": ("Date", "Creator", "Format", "Type"),
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
}
FORMATS = tuple(_UNSAID)


def read_formats(text: str) -> list[str]:
    """``"svg,png"`` as a list, each format once.

    Raises
    ------
    ConfigError
        One of them is none of `FORMATS`.
    """
    formats = list(dict.fromkeys(part.strip() for part in text.split(",")))
    check_formats(formats)
    return formats


def check_formats(formats: Sequence[str]) -> None:
    """Raise `ConfigError` unless there are some, and each is one of `FORMATS`."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ConfigError(
            f"--format: takes {', '.join(FORMATS)}, with commas between; got "
            + (shown(unknown[0]) if unknown else "none")
        )


def figure_bytes(figure: Figure, form: str, **saving: Any) -> bytes:
    """The file of `figure` in the format `form`; the same figure gives the same bytes.

    `saving` is for `Figure.savefig`.

    Raises
    ------
    ConfigError
        `form` is none of `FORMATS`.
    """
    check_formats([form])
    file, unsaid = io.BytesIO(), dict.fromkeys(_UNSAID[form])
    with matplotlib.rc_context(_STYLE):
        figure.savefig(file, format=form, metadata=unsaid, **saving)
    return file.getvalue()


def write_figure(path: str | os.PathLike, figure: Figure, **saving: Any) -> None:
    """Write `figure` in the format that the ending of `path` names.

    Raises
    ------
    ConfigError
        If there is no such format, or `path` cannot be written; nothing is left behind.
    """
    write_atomically(path, figure_bytes(figure, Path(path).suffix[1:], **saving))
