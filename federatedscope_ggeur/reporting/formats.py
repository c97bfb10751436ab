"""Write figures as files: PNG, or SVG and PDF for print."""

from __future__ import annotations

import io
import os
import warnings
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
    # These override a user's own matplotlibrc.
    "savefig.bbox": None,
    "savefig.dpi": "figure",
    "savefig.facecolor": "auto",
}
#: Metadata that matplotlib would write about the program and the date.
_UNSAID = {
    "svg": ("Date", "Creator", "Format", "Type"),
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
}
FORMATS = tuple(_UNSAID)


def read_formats(text: str) -> list[str]:
    """Split a text such as ``"svg,png"`` into a list, with each format once.

    Raises
    ------
    ConfigError
        A format is not one of `FORMATS`.
    """
    formats = list(dict.fromkeys(part.strip() for part in text.split(",")))
    check_formats(formats)
    return formats


def check_formats(formats: Sequence[str]) -> None:
    """Raise `ConfigError` unless there are formats, and all are in `FORMATS`."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ConfigError(
            f"--format: must be one or more of {', '.join(FORMATS)}, with commas; got "
            + (shown(unknown[0]) if unknown else "none")
        )


def figure_bytes(figure: Figure, form: str, **saving: Any) -> bytes:
    """The bytes of `figure` in the format `form`. The same figure gives the same bytes.

    `saving` are more arguments of `Figure.savefig`.

    Raises
    ------
    ConfigError
        `form` is not one of `FORMATS`.
    """
    check_formats([form])
    file, unsaid = io.BytesIO(), dict.fromkeys(_UNSAID[form])
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The picture itself shows a box for a character that the font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(file, format=form, metadata=unsaid, **saving)
    return file.getvalue()


def write_figure(path: str | os.PathLike, figure: Figure, **saving: Any) -> None:
    """Write `figure` to `path`, whose ending decides the format.

    Raises
    ------
    ConfigError
        There is no such format, or the file cannot be written. No part of it is left
        then.
    """
    write_atomically(path, figure_bytes(figure, Path(path).suffix[1:], **saving))
