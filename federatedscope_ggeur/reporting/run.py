"""The folder of a run, and the files in it that its results make."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from federatedscope_ggeur.errors import ConfigError, DataError, refusing
from federatedscope_ggeur.files import read_regular, write_atomically

from . import run_files
from .results import Results, metrics_csv

#: What to do where no folder for a run can be made.
ELSEWHERE = "set 'outdir' and 'expname' to a folder that can be written to"


def own_file(folder: str | os.PathLike, number: int) -> Path:
    """The file of a client's own model."""
    return Path(folder) / run_files.OWN_FOLDER / f"client_{number}.safetensors"


def write_run(
    folder: str | os.PathLike,
    results: Results,
    head: bytes | None = None,
    own: Iterable[tuple[int, bytes]] = (),
) -> None:
    """Write ``results.json``, ``metrics.csv``, ``curve.png`` and the models.

    The models are ``head.safetensors`` and clients' own models, by number, if there are
    any. They are written even if another file fails. Each file is written atomically.
    It replaces an earlier state of the same run, so a run may write as it goes.

    Raises
    ------
    DataError
        The results hold a value that JSON cannot hold; none of them is written.
    ConfigError
        A file cannot be written.
    """
    # Imported here: nothing else needs matplotlib.
    from .plots import draw_curve

    folder = Path(folder)
    try:
        write_atomically(folder / run_files.RESULTS_FILE, results.to_json())
        write_atomically(folder / run_files.METRICS_FILE, metrics_csv(results))
        draw_curve(results, folder / run_files.CURVE_FILE)
    finally:
        _write_models(folder, head, own)


def write_left(
    folder: str | os.PathLike,
    results: Results,
    head: bytes | None,
    own: Iterable[tuple[int, bytes]],
) -> None:
    """Write the files that `predict` and the clients of a distributed run need.

    These are the files of `write_run` without table and curve.

    Raises
    ------
    ConfigError
        A file cannot be written.
    """
    folder = Path(folder)
    write_atomically(folder / run_files.RESULTS_FILE, results.to_json())
    _write_models(folder, head, own)


def _write_models(
    folder: Path, head: bytes | None, own: Iterable[tuple[int, bytes]]
) -> None:
    if head is not None:
        write_atomically(folder / run_files.HEAD_FILE, head)
    for number, data in own:
        path = own_file(folder, number)
        with refusing(f"cannot make '{path.parent}'"):
            path.parent.mkdir(exist_ok=True)
        write_atomically(path, data)


def cut_off(folder: str | os.PathLike) -> str:
    """A text on a run's folder that has a checkpoint alone; "" for other folders."""
    folder = Path(folder)
    kept = folder / run_files.CHECKPOINT_FILE
    if (folder / run_files.RESULTS_FILE).exists() or not kept.is_file():
        return ""
    return (
        f"the run in '{folder}' was cut off, or is still at work, so it has no "
        f"{run_files.RESULTS_FILE}. If it was cut off, it goes on with "
        # No config need be loaded here, so `setting` may not know the key.
        f"federate.restore_from '{kept}'"
    )


def read_results(folder: str | os.PathLike) -> Results:
    """The ``results.json`` of a run's folder.

    Raises
    ------
    DataError
        The file is missing, broken, of another version or of another kind; the message
        names it.
    """
    path = Path(folder) / run_files.RESULTS_FILE
    with refusing(f"'{path}': cannot be read", kind=DataError):
        text = read_regular(path).decode()
    try:
        return Results.from_json(text)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from None


def new_run_folder(outdir: str | os.PathLike, expname: str) -> Path:
    """Make a new, empty folder for one run, as FederatedScope names it.

    The folder is ``outdir/expname``. If that exists already, it is
    ``outdir/expname/sub_exp_<YYYYmmddHHMMSS>``; further runs within that second get
    ``_2``, ``_3``, ... at the end. Runs that start at the same time get different
    folders.

    Raises
    ------
    ConfigError
        The folder cannot be made, e.g. because a file is in the way.
    """
    parent = Path(outdir, expname)
    try:
        parent.parent.mkdir(parents=True, exist_ok=True)
        return next(folder for folder in _candidates(parent) if _made(folder, parent))
    except OSError as error:
        raise ConfigError(
            f"cannot make a folder for the run in '{parent}': "
            f"{obstacle(outdir, expname) or error.strerror}; {ELSEWHERE}"
        ) from error


def obstacle(outdir: str | os.PathLike, expname: str) -> str:
    """Why `new_run_folder` can make no folder there; "" if it can.

    A folder is made there, and taken away again.
    """
    place = Path(outdir, expname).absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"'{place}' is not a folder"
    try:
        TemporaryDirectory(prefix=".", dir=place).cleanup()
    except OSError as error:
        return f"'{place}': {error.strerror}"
    return ""


def _candidates(parent: Path) -> Iterator[Path]:
    yield parent
    stem = datetime.now().strftime("sub_exp_%Y%m%d%H%M%S")
    yield parent / stem
    yield from (parent / f"{stem}_{number}" for number in count(2))


def _made(folder: Path, parent: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        if not parent.is_dir():
            raise
        return False
    return True
