"""Runs an experiment in a terminal, with messages, a progress bar and files."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.run_settings import experiment_name
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import TO_GO_ON, Run, from_any_folder
from federatedscope_ggeur.errors import GGEURError, listed
from federatedscope_ggeur.federation.course.checkpoint import warn_of_private
from federatedscope_ggeur.federation.exchanges.base import writing_files
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.progress import Progress, above_bars, no_progress, phase
from federatedscope_ggeur.reporting import (
    OWN_FOLDER,
    Round0,
    RoundRecord,
    new_run_folder,
    record_lines,
    results_table,
    run_files,
    write_run,
)

from . import INTERRUPTED, PROGRAM

logger = get_logger("federatedscope_ggeur")
_STOPS = (signal.SIGINT, signal.SIGTERM)
_FILE_ONLY = {"file_only": True}
_MOST_CLIENTS = 1000  # that the log names in a round


def run_with_files(
    cfg,
    level: str | None = None,
    data: FederatedData | None = None,
    begun: Callable[[Path], object] = lambda folder: None,
) -> int:
    """Run `cfg`, show its progress, and write its files into a new folder.

    Parameters
    ----------
    cfg : CfgNode
    level : str, optional
        See `shown_on_console`; by default the config's ``verbose`` decides.
    data : FederatedData, optional
        In place of what the config names.
    begun : callable, optional
        Called with the folder before anything is written there.

    Returns
    -------
    int
        The exit status: 0, or 130 after an interruption.

    Raises
    ------
    Exception
        The error that stopped the run; a `GGEURError` unless it is a bug. If the run
        has a folder already, log.txt contains the error, too. An interrupted run leaves
        the files of its completed rounds.
    """
    shown = cfg.verbose > 0 if level is None else level
    with shown_on_console(shown):
        run = Run(cfg, data)
        run.use_cores()
    folder = new_run_folder(cfg.outdir, experiment_name(cfg))
    begun(folder)
    log = run_files.logging_to(folder / run_files.LOG_FILE)
    with shown_on_console(shown), log, _stoppable() as ignore_stops:
        try:
            _follow(run, folder)
            ignore_stops()  # nothing breaks off the writing of files
        except KeyboardInterrupt:
            ignore_stops()
            logger.warning("interrupted after %s", _done(run))
            _keep(run, folder, "interrupted")
            _write(run, folder, "interrupted")
            return INTERRUPTED
        except Exception as error:
            ignore_stops()
            _log_error(f"failed after {_done(run)}", error)
            try:
                _keep(run, folder, "failed")
                _write(run, folder, "failed")
            except Exception as second:  # the first error is the one to raise
                logger.warning("not all files could be written: %s", second)
            raise
        run.history.flush()
        _write(run, folder, "finished")
    return 0


def _follow(run: Run, folder: Path) -> None:
    logger.info("run folder: %s", folder)
    write_atomically(folder / run_files.CONFIG_FILE, run.cfg.dump())
    run.engine.keep_in(folder)
    for line in run.describe():
        logger.info(line)
    run.engine.phase = phase
    with _Rounds(run) as rounds:
        run.follow(rounds.show)


def _write(run: Run, folder: Path, status: str) -> None:
    """Write all files of the completed rounds, and the table."""
    if status != "finished" and run.history.last_scored is None:
        logger.warning(
            "the run stopped before the first round was over, so %s has no "
            "results and no head",
            folder,
        )
        return
    try:
        results, head = run.history.results(status), run.history.head_bytes()
        with writing_files(run.settings.role, folder):
            write_run(folder, results, head, run.history.own_bytes())
    except Exception as error:
        _log_error("not all files could be written", error)
        raise
    table = results_table(results)
    logger.debug("%s", table, extra=_FILE_ONLY)
    print(table, flush=True)
    models = "" if head is None else ", head.safetensors"
    models += "" if results.own_models is None else f", {OWN_FOLDER}"
    logger.info(f"results.json, metrics.csv, curve.png{models} are in {folder}")
    warn_of_private(folder)


def _keep(run: Run, folder: Path, status: str) -> None:
    """Write the checkpoint of the completed rounds, and log how to go on from it."""
    run.history.flush()
    kept = run.history.checkpoints
    if kept is not None and kept.is_written:
        command = [PROGRAM, "--cfg", str(folder / run_files.CONFIG_FILE)]
        command += ["federate.restore_from", str(kept.path)]
        logger.warning("%s: %s", TO_GO_ON[status], from_any_folder(command))


def _done(run: Run) -> str:
    return f"{len(run.history.rounds)} of {run.settings.rounds} rounds"


def _log_error(what: str, error: Exception) -> None:
    """Log an error only into the file. The caller shows it to the user."""
    kind = type(error).__name__
    logger.error("%s: %s: %s", what, kind, error, extra=_FILE_ONLY)
    if not isinstance(error, GGEURError):
        logger.debug("where it happened:", exc_info=error)


class _Rounds(ExitStack):
    """Tells of a run's records, and shows the progress of rounds from round 0 on."""

    def __init__(self, run: Run):
        super().__init__()
        self._run, self._restored = run, len(run.history.rounds)
        self._progress: Progress | None = None

    def show(self, record: Round0 | RoundRecord) -> None:
        if isinstance(record, Round0) or record.method is not None:
            for line in record_lines(record):
                logger.info(line)
        if isinstance(record, Round0):
            # Only now it is known whether there are rounds.
            if rounds := self._run.engine.server.rounds:
                shown = Progress(rounds, "round", done=self._restored)
                self._progress = self.enter_context(shown)
        elif record.method is None:
            self._show_round(record)

    def _show_round(self, record: RoundRecord) -> None:
        who = listed(list(map(str, record.clients)), _MOST_CLIENTS)
        logger.debug(
            f"round {record.round}: clients {who}, AVG {record.avg}, loss "
            f"{record.loss}, {record.seconds:.3f} s, {record.bytes_up} bytes up, "
            f"{record.bytes_down} down"
        )
        progress = self._progress
        if progress is not None and record.round > progress.done:  # not a restored one
            score = "" if record.avg is None else f"AVG {100 * record.avg:.2f}%"
            progress.step(note=score)


class _Console(logging.StreamHandler):
    """A log handler for standard error that keeps a progress bar below the messages."""

    def emit(self, record: logging.LogRecord) -> None:
        with above_bars(self.stream):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # such as a full disk
            super().handleError(record)


@contextmanager
def shown_on_console(level: str | bool) -> Iterator[None]:
    """A context in which the package's messages from this level on are shown.

    Parameters
    ----------
    level : str or bool
        debug, info, warning or error. True means info and False means warning, for
        FederatedScope's ``verbose``. Above info there is no progress bar.
    """
    if isinstance(level, bool):
        level = "info" if level else "warning"
    lowest = logging.getLevelName(level.upper())
    console = _Console()
    console.setLevel(lowest)
    console.setFormatter(logging.Formatter("%(message)s"))
    console.addFilter(lambda record: not hasattr(record, "file_only"))
    with run_files.handled_by(console), ExitStack() as stack:
        if lowest > logging.INFO:
            stack.enter_context(no_progress())
        yield


@contextmanager
def _stoppable() -> Iterator[Callable[[], None]]:
    """A context in which SIGTERM, a scheduler's stop signal, acts like Ctrl-C.

    It yields a function that makes the process ignore both.
    """

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    def set_all(handlers: dict) -> None:
        with suppress(ValueError):  # not in the main thread: signals stay as they are
            for number, handler in handlers.items():
                signal.signal(number, handler)

    before = {number: signal.getsignal(number) for number in _STOPS}
    # An ignored signal stays ignored (nohup); None could not be restored.
    before = {n: was for n, was in before.items() if was not in (signal.SIG_IGN, None)}
    set_all(dict.fromkeys(before, interrupt))
    try:
        yield lambda: set_all(dict.fromkeys(before, signal.SIG_IGN))
    finally:
        set_all(before)
