"""Write all files of a report into a new folder, or write none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import write_folder
from federatedscope_ggeur.reporting.run_files import REPORT_FOLDER

from .comparison import Comparison
from .pictures import Picture, render
from .sheets import Sheet, sheet_markdown


def report_files(
    comparison: Comparison,
    pictures: Sequence[Picture],
    formats: Sequence[str],
    more: Sequence[Sheet],
    texts: Mapping[str, str],
) -> dict[str, bytes]:
    """Make the contents of a report's files, by name.

    Parameters
    ----------
    comparison : Comparison
    pictures : sequence of Picture
    formats : sequence of str
        The formats of the pictures' files. The page always has SVG.
    more : sequence of Sheet
        More sheets behind the tables, in Markdown and on the page.
    texts : mapping
        More files, as a text for each name.
    """
    behind = "".join(f"\n{sheet_markdown(sheet)}\n" for sheet in more)
    all_texts = {
        "table.md": comparison.to_markdown() + behind,
        "table.csv": comparison.to_csv(),
        "table.tex": comparison.to_latex(),
        "report.html": comparison.to_html(pictures, more),
        **texts,
    }
    files = {name: text.encode() for name, text in all_texts.items()}
    for picture in pictures:
        for form in formats:
            files[f"{picture.name}.{form}"] = render(picture, form)
    return files


def default_folder(of: str | os.PathLike) -> Path:
    """The first free name of ``report``, ``report_2``, ... in the folder `of`.

    If `of` is a file, its folder counts.
    """
    place = Path(of) if Path(of).is_dir() else Path(of).parent
    later = (f"{REPORT_FOLDER}_{number}" for number in count(2))
    folders = (place / name for name in chain([REPORT_FOLDER], later))
    return next(folder for folder in folders if not os.path.lexists(folder))


def check_free(folder: Path) -> None:
    """Raise `ConfigError` unless `folder` does not exist or is empty."""
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if os.path.lexists(folder) and not is_empty:
        raise ConfigError(
            f"--out: '{folder}' exists already; nothing was written. Name another "
            "folder."
        )


def write_report(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all `files` into the new folder `folder`.

    Raises
    ------
    ConfigError
        The folder exists and is not empty, or cannot be written. No file is left then.
    """
    check_free(folder)
    try:
        write_folder(folder, files)
    except OSError as error:
        raise ConfigError(
            f"cannot write the report into '{folder}': {error.strerror or error}; "
            "name a writable folder by --out"
        ) from error
