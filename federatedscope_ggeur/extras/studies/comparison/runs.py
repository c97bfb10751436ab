"""Find the runs below some folders, and the studies that they belong to.

The numbers of a run by which rows are compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.reporting.records import RoundRecord
from federatedscope_ggeur.reporting.results import Results
from federatedscope_ggeur.reporting.run import cut_off, read_results
from federatedscope_ggeur.reporting.run_files import RESULTS_FILE

from ..study import Cell, Study, read_cell, read_study

#: Folders that are left out of reports: the runs of tuning, and cells in progress.
_TUNING, _IN_PROGRESS = "tuning", ".part"
_LISTED = 10


@dataclass(frozen=True, eq=False)
class FoundRun:
    """One run that was found, with its cell if it belongs to a study.

    Attributes
    ----------
    folder : Path
    results : Results
    cell : Cell or None
    """

    folder: Path
    results: Results
    cell: Cell | None = None


@dataclass(frozen=True, eq=False)
class FoundRuns:
    """The runs and studies that were found below some folders.

    Attributes
    ----------
    runs : list of FoundRun
        The finished runs, in the order of the folders, and of the paths in a folder.
    studies : list of Study
        The studies that the runs belong to, or whose folders were named.
    notes : list of str
        Notes on what was left out, and why.
    """

    runs: list[FoundRun]
    studies: list[Study]
    notes: list[str]


def find_runs(folders: Sequence[str | os.PathLike]) -> FoundRuns:
    """Read the results of all runs below `folders`.

    Folders named ``tuning`` or ``*.part`` are left out, and runs that did not finish.

    Raises
    ------
    DataError
        A folder does not exist, or there is no finished run. Or files are broken, or of
        another version or kind. The message names all these files.
    """
    runs: list[FoundRun] = []
    problems: list[str] = []
    studies: dict[Path, Study] = {}
    unfinished = 0
    for path in _results_files(folders):
        try:
            results = read_results(path.parent)
            run = FoundRun(path.parent, results, read_cell(path.parent))
            if run.cell is not None:
                _add_study_of(run.cell, path.parent, studies)
        except DataError as error:
            problems.append(str(error))
            continue
        if results.status != "finished":
            unfinished += 1
        else:
            runs.append(run)
    if problems:
        more = len(problems) - _LISTED
        lines = problems[:_LISTED] + [f"and {more} more"] * (more > 0)
        head = "these results cannot be read; remove them, or run them again:"
        raise DataError(Lines([head, *(f"  {line}" for line in lines)]))
    for folder in map(Path, folders):
        if folder.is_dir():
            _add(studies, folder)
    notes = [_unfinished_note(unfinished)] if unfinished else []
    if not runs:
        named = ", ".join(f"'{folder}'" for folder in folders)
        raise DataError(
            f"there is no finished run in {named}: no {RESULTS_FILE} is in or below "
            f"{'it' if len(folders) == 1 else 'them'} (folders named {_TUNING} or "
            f"*{_IN_PROGRESS} do not count)"
            + "".join(f"; {note}" for note in notes)
            + "".join(f"; {problem}" for problem in filter(None, map(cut_off, folders)))
            + "".join(f"; {_failed_note(study)}" for study in studies.values())
        )
    return FoundRuns(runs, list(studies.values()), notes)


def _results_files(folders: Sequence[str | os.PathLike]) -> Iterator[Path]:
    """Yield the path of each results.json once, in order.

    An entry of `folders` is a folder or a results.json.
    """
    seen: set[Path] = set()
    for folder in map(Path, folders):
        if folder.is_dir():
            paths = sorted(_below(folder))
        elif folder.name == RESULTS_FILE and folder.is_file():
            paths = [folder]
        else:
            raise DataError(f"'{folder}' is neither a folder nor a file {RESULTS_FILE}")
        for path in paths:
            if (real := path.resolve()) not in seen:
                seen.add(real)
                yield path


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name != _TUNING and not name.endswith(_IN_PROGRESS)
        ]
        if RESULTS_FILE in files:
            yield Path(where, RESULTS_FILE)


def _add_study_of(cell: Cell, folder: Path, studies: dict[Path, Study]) -> None:
    """Add the study that `cell` belongs to. The study's folder is above `folder`."""
    for place in folder.resolve().parents:
        study = _add(studies, place)
        if study is not None and study.name == cell.study:
            return


def _add(studies: dict[Path, Study], folder: Path) -> Study | None:
    """Read the study in `folder` once, and add it; None if there is no study."""
    place = folder.resolve()
    if place not in studies and (study := read_study(place)) is not None:
        studies[place] = study
    return studies.get(place)


def _unfinished_note(count: int) -> str:
    runs = "1 run that was" if count == 1 else f"{count} runs that were"
    return f"left out: {runs} interrupted or failed"


def _failed_note(study: Study) -> str:
    return f"study {study.name}: {len(study.failed)} cells failed"


@dataclass(frozen=True)
class Measure:
    """One kind of number that each run has.

    Attributes
    ----------
    key : str
        The kind. ``accuracy``, ``avg`` and ``std`` are fractions in [0, 1] of the run's
        score (`Final`). ``bytes_up`` and ``bytes_down`` are bytes of all messages,
        divided by the number of clients. ``seconds`` is the time of round 0 and all
        rounds, ``seconds_a_round`` the mean time of a round without round 0.
    domain : str
        The domain of ``accuracy``; else "".
    """

    key: str
    domain: str = ""

    @property
    def title(self) -> str:
        """The name of the measure in tables."""
        return self.domain if self.key == "accuracy" else _TITLES[self.key]

    @property
    def is_score(self) -> bool:
        """Whether the number is a fraction, which tables show in percent."""
        return self.key in _SCORES

    @property
    def smallest_is_best(self) -> bool:
        """Whether smaller is better, as for all measures except accuracies."""
        return self.key not in ("accuracy", "avg")

    def of(self, results: Results) -> float | None:
        """The number of a run; None if the run has none."""
        if self.key == "accuracy":
            return results.final.accuracy.get(self.domain)
        return _NUMBERS[self.key](results)


def _senders(results: Results) -> int:
    """The number of clients that send. Clients whose rows are pooled count."""
    return len(results.clients) if results.pooled is None else results.pooled.clients


def _a_client(total: int, results: Results) -> float | None:
    senders = _senders(results)
    return total / senders if senders else None


_SCORES = ("accuracy", "avg", "std")
_TITLES = {
    "avg": "AVG",
    "std": "STD",
    "bytes_up": "MB up a client",
    "bytes_down": "MB down a client",
    "seconds": "seconds",
}
_NUMBERS: dict[str, Callable[[Results], float | None]] = {
    "avg": lambda results: results.final.avg,
    "std": lambda results: results.final.std,
    "bytes_up": lambda results: _a_client(results.final.bytes_up, results),
    "bytes_down": lambda results: _a_client(results.final.bytes_down, results),
    "seconds": lambda results: results.final.seconds,
    "seconds_a_round": lambda results: (
        fmean(record.seconds for record in results.rounds) if results.rounds else None
    ),
}
AVG, STD = Measure("avg"), Measure("std")
#: The measures of what a run costs.
COSTS = (Measure("bytes_up"), Measure("bytes_down"), Measure("seconds"))


def scored(results: Results) -> list[RoundRecord]:
    """The scored states of the model: the head in closed form, then evaluated rounds.

    The head in closed form counts as round 0.
    """
    return [record for record in _states(results) if record.evaluated]


def _states(results: Results) -> list[RoundRecord]:
    """The head in closed form, if there is one, then all rounds."""
    heads = [results.closed_form] if results.closed_form is not None else []
    return heads + results.rounds


def rounds_to(results: Results, target: float) -> int | None:
    """The first evaluated round whose AVG is at least `target`; None if there is none.

    0 stands for the head in closed form.
    """
    for record in scored(results):
        if record.avg is not None and record.avg >= target:
            return record.round
    return None


def bytes_so_far(results: Results) -> Iterator[tuple[RoundRecord, float]]:
    """Yield each scored state with the bytes that a client has sent and received so
    far."""
    clients = _senders(results) or 1
    total = 0 if results.pooled is None else results.pooled.bytes_up
    if results.round0 is not None:
        total += results.round0.bytes_up + results.round0.bytes_down
    for record in _states(results):
        total += record.bytes_up + record.bytes_down
        if record.evaluated:
            yield record, total / clients
