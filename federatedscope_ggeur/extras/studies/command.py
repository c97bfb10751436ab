"""``ggeur study``: runs combinations of methods, data sets and seeds."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from federatedscope_ggeur.commands import (
    INTERRUPTED,
    PROGRAM,
    add_options,
    command_parser,
)
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import study_files, title_of
from federatedscope_ggeur.machine import usable_cores
from federatedscope_ggeur.printable import get_logger, say
from federatedscope_ggeur.progress import Progress

from .study import Study

if TYPE_CHECKING:
    from .comparison import Comparison
    from .jobs import Job
    from .plan import StudyPlan
    from .workers import JobEvent, JobWorkers

    #: Makes the text about the runs in a folder, and what it draws there.
    Show = Callable[[Comparison, Path], str]
    #: What is done before the first run.
    Begin = Callable[[StudyPlan], None]

logger = get_logger(__name__)


class StudyProgress:
    """Tells of a study's runs, by a bar, or by lines of the log."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None

    def __enter__(self) -> StudyProgress:
        return self

    def __exit__(self, *exception) -> None:
        if self._progress is not None:
            self._progress.__exit__(*exception)

    def begin(
        self, stage: str, jobs: Sequence[Job], over: Mapping[str, float | None]
    ) -> None:
        """Tell that a stage begins."""
        self.__exit__()
        if over and not self._quiet:
            say(f"{stage}: {len(over)} of {len(jobs)} runs are finished already")
        what = "" if stage == "runs" else stage
        self._progress = Progress(len(jobs), "run", what, done=len(over))

    def tell(self, event: JobEvent) -> None:
        """Tell what has happened to a job."""
        assert self._progress is not None, "a stage has begun"
        name, kind = event.job.name, event.kind
        if kind == "rounds":
            self._progress.note(f"{name}: round {event.done} of {event.total}")
        elif kind == "killed":
            logger.info("%s: %s; it starts again", name, event.problem)
        else:
            said = _percent(event.score)
            if kind == "failed":
                said = "failed"
                problem = " ".join(event.problem.split())  # an error may have lines
                logger.info("%s: %s", name, problem)
            self._progress.step(note=f"{name}: {said}")


def _percent(score: float | None) -> str:
    """A score in percent; "done" for a run without a score."""
    return "done" if score is None else f"{100 * score:.2f}"


_STUDY = """
file [FILE]: a study file, or the name of a bundled study; without FILE, bundled studies
  are listed
--list: list finished and missing runs; run nothing
"""
_OPTIONS = """
--out FOLDER: the folder for the runs (default: the study's name, below the outdir of
  its base)
--workers N: the number of processes with one thread each (default: the study's, or one
  for each core)
--quiet: print only failures
settings [KEY VALUE...]: override settings of every run
"""


def study(arguments: Sequence[str]) -> int:
    """Run a study; returns 1 if a run failed, 130 after an interruption."""
    parser = command_parser(
        "study",
        "Every run has a folder. To continue a study, repeat the command: finished "
        "runs are not repeated, and an interrupted run goes on from its checkpoint. "
        "docs/studies.md describes study files.",
    )
    add_options(parser, _STUDY)
    add_study_options(parser)
    options = parser.parse_intermixed_args(arguments)
    if options.file is None:
        for file in study_files():
            print(f"{file.stem}: {title_of(file)}")
        return 0
    return _list(options) if options.list else run_study(options.file, options, _tables)


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the folder, the processes and the settings of a study."""
    add_options(parser, _OPTIONS, workers={"type": int})


def run_study(
    file: str, options: argparse.Namespace, show: Show, begin: Begin | None = None
) -> int:
    """Run the study `file` and print the text that `show` makes about its runs.

    `options` are those of `add_study_options`. `begin` is called before the first run,
    unless they ask for quiet. Returns the exit status of `study`.
    """
    if options.workers is not None and options.workers < 1:
        raise ConfigError(f"--workers: must be at least 1, got {options.workers}")
    # Imported here: torch takes seconds, and --help does not need it.
    from .workers import JobWorkers

    # They start before anything is computed, so that they may be forked.
    with JobWorkers(options.workers or usable_cores()) as workers:
        return _run(file, options, workers, show, begin)


def _list(options: argparse.Namespace) -> int:
    """Print which runs are finished, and which are missing."""
    from .running import StudyRun, averages
    from .study_file import load_study

    plan = load_study(options.file, options.settings)
    run = StudyRun(plan, options.out)
    ready = run.jobs()
    jobs = [*run.tries(), *ready]
    over = averages(jobs)
    for name in (job.name for job in jobs):
        said = _percent(over[name]) if name in over else "to do"
        say(f"{said:>10}  {name}")
    _say(run.notes)
    waiting = len(plan.cells()) - len(ready)
    if waiting:
        print(f"{waiting} more after tuning")
    return 0


def _run(
    file: str,
    options: argparse.Namespace,
    workers: JobWorkers,
    show: Show,
    begin: Begin | None,
) -> int:
    from federatedscope_ggeur.commands.console import shown_on_console

    from .running import StudyRun
    from .study_file import load_study

    plan = load_study(file, options.settings)
    if options.workers is None and plan.workers is not None:
        workers.resize(plan.workers)
    run = StudyRun(plan, options.out)
    notes = run.notes
    if run.uses_gpu and options.workers is None and plan.workers is None:
        notes = [*notes, *_share_gpus(workers)]
    if not options.quiet:
        _say(notes)
        if begin is not None:
            begin(plan)
    try:
        shown = shown_on_console("warning" if options.quiet else "info")
        with shown, StudyProgress(options.quiet) as progress:
            record = run.run(workers, progress)
    except KeyboardInterrupt:
        over = f"finished runs are in {run.folder}"
        say(f"interrupted; {over}; repeat the command to go on", file=sys.stderr)
        return INTERRUPTED
    return _tell_end(record, run.folder, options.quiet, show)


def _share_gpus(workers: JobWorkers) -> list[str]:
    """Give each GPU one run at a time; returns a note on it."""
    import torch

    from .workers import VISIBLE

    gpus = [str(number) for number in range(torch.cuda.device_count())]
    if not gpus:
        return []
    seen = os.environ.get(VISIBLE, "")
    workers.share_gpus(seen.split(",")[: len(gpus)] if seen else gpus)
    if len(gpus) == 1:
        return ["the runs share one GPU, so they run one after the other"]
    return [f"{len(gpus)} GPUs, each of which does one run at a time"]


def _tables(comparison: Comparison, folder: Path) -> str:
    """The text of a comparison for a terminal."""
    return comparison.to_text()


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}")


def _tell_end(record: Study, folder: Path, quiet: bool, show: Show) -> int:
    """Print the table of finished runs and the failures; returns the exit status."""
    if not quiet:
        from .comparison import Comparison

        cells = len(record.seeds) * prod(len(axis.points) for axis in record.axes)
        if len(record.failed) < cells:
            print(show(Comparison.of([folder]), folder))
        say(f"runs: {folder}", f"curves and tables: {PROGRAM} report {folder}")
    by_problem: dict[str, list[str]] = {}
    for failed in record.failed:
        name = " / ".join([*failed.labels.values(), f"seed {failed.seed}"])
        by_problem.setdefault(failed.problem, []).append(name)
    for problem, names in by_problem.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        first, *others = problem.split("\n")
        say(f"failed: {names[0]}{more}: {first}", *others, file=sys.stderr)
    return 1 if record.failed else 0
