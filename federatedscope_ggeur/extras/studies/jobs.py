"""Start or continue one run of a study, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import DataSet, fingerprint
from federatedscope_ggeur.engines.run import Run, divide, load_data_set, what_to_load
from federatedscope_ggeur.errors import ConfigError, DataError, GGEURError
from federatedscope_ggeur.federation.exchanges.base import rename_run
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import (
    Capture,
    Origin,
    Results,
    RoundRecord,
    read_results,
    results_table,
    write_run,
)
from federatedscope_ggeur.reporting.run_files import (
    CELL_FILE,
    CHECKPOINT_FILE,
    CONFIG_FILE,
    LOG_FILE,
    PRIVATE,
    logging_to,
)

from .study import Cell, read_cell, to_text

logger = get_logger(__name__)

PART = ".part"
_TELL_SECONDS = 0.5
_LISTED = 5
#: A function that is called with the number of finished rounds, the number of all
#: rounds, and the last AVG.
Tell = Callable[[int, int, "float | None"], object]


@dataclass(frozen=True)
class Job:
    """The work of one worker: a run, or the embedding of images.

    Attributes
    ----------
    name : str
        The job's name in messages.
    base : path of the config
    cell : Cell
        The run's settings and seed. The file ``cell.json`` in the run's folder
        holds the cell.
    folder : path
        The folder of the run. None if the job only embeds the images of the data set.
    origin : Origin
        The command and the git commit with which the study was started.
    beside : path
        The folder of the study's file.
    """

    name: str
    base: Path
    cell: Cell
    folder: Path | None
    origin: Origin
    beside: Path

    def config(self):
        """Load and check the config of the run.

        Raises
        ------
        ConfigError
            Settings are wrong, or they name a file for the checkpoint, which all runs
            of the study would share.
        """
        own = {**self.cell.settings, "seed": self.cell.seed}
        if self.folder is not None:
            own.update(outdir=str(self.folder.parent), expname=self.folder.name)
        cfg = load_config(self.base, own, beside=self.beside)
        for key, what in (
            ("save_to", "keeps its checkpoint"),
            ("restore_from", "looks for its checkpoint"),
        ):
            if cfg.federate[key]:
                raise ConfigError(
                    f"federate.{key}: every run of a study {what} in its folder; "
                    "remove this setting"
                )
        return cfg


def results_in(job: Job) -> Results | None:
    """The results of a job's finished run; None if there is no finished run.

    Raises
    ------
    ConfigError
        The job's folder holds another run; the message names the settings that differ.
    DataError
        The results cannot be read.
    """
    if not is_finished(job):
        return None
    assert job.folder is not None
    return read_results(job.folder)


def is_finished(job: Job) -> bool:
    """Whether a job's folder holds its finished run.

    Raises
    ------
    ConfigError
        The folder holds another run; the message names the settings that differ.
    DataError
        The file ``cell.json`` cannot be read.
    """
    folder = job.folder
    if folder is None or not os.path.lexists(folder):
        return False
    held = read_cell(folder)
    if held is None:
        raise ConfigError(
            f"'{folder}' is not a run of a study; name another folder by --out"
        )
    differ = _differences(held, job.cell)
    if differ:
        raise ConfigError(
            f"'{folder}' holds a run with other settings ({'; '.join(differ)}); "
            "name another folder by --out, or move this one away"
        )
    return True


def _differences(held: Cell, wanted: Cell) -> list[str]:
    pairs = [("seed", held.seed, wanted.seed), ("engine", held.engine, wanted.engine)]
    keys = dict.fromkeys([*held.settings, *wanted.settings])
    pairs += [(k, held.settings.get(k), wanted.settings.get(k)) for k in keys]
    differ = [f"{key} {a!r:.60}, now {b!r:.60}" for key, a, b in pairs if a != b]
    more = len(differ) - _LISTED
    return differ[:_LISTED] + [f"and {more} more"] * (more > 0)


class Runner:
    """Run jobs one after another.

    The runner keeps the data set of the last job in memory, because many jobs of a
    study use the same one.
    """

    def __init__(self):
        self._key: tuple | None = None
        self._data: DataSet | None = None

    def do(self, job: Job, tell: Tell) -> float | None:
        """Do a job; a run that was cut off goes on from its checkpoint.

        Of a finished run only the rows are checked: they must not have changed since.

        The run's folder is called ``<folder>.part`` until the run is finished.

        Returns
        -------
        float or None
            The run's AVG, if it has one.

        Raises
        ------
        ConfigError
            The rows of a finished run have changed.
        GGEURError
            The run failed. Its ``.part`` folder stays, and the log there has the error.
        """
        if job.folder is None:
            self._data_set(job.config())
            return None
        done = results_in(job)
        if done is not None:
            self._check_rows(job, done)
            return done.final.avg
        part = job.folder.with_name(job.folder.name + PART)
        if not _is_of(part, job):
            _remove(part)
        elif _is_finished(part):
            return _moved(part, job.folder)
        self._run(job, part, tell)
        return _moved(part, job.folder)

    def _check_rows(self, job: Job, done: Results) -> None:
        """Raise `ConfigError` if a finished run would have other rows now."""
        before = done.provenance.data if done.provenance else None
        if before is None:
            return
        cfg = job.config()
        try:
            rows, sha256 = fingerprint(divide(cfg, self._data_set(cfg)))
        except GGEURError:
            return  # the runs that need these data will tell
        if sha256 != before.sha256:
            counts = f"{before.rows} rows before, {rows} now"
            if rows == before.rows:
                counts = f"still {rows} rows, but other values, labels or splits"
            raise ConfigError(
                f"'{job.folder}' holds a run on other rows: the data in data.root "
                f"'{cfg.data.root}' have changed since ({counts}); put the former rows "
                "back, or name another folder by --out"
            )

    def _run(self, job: Job, part: Path, tell: Tell) -> None:
        part.mkdir(parents=True, exist_ok=True)
        write_atomically(part / CELL_FILE, to_text(job.cell))
        with logging_to(part / LOG_FILE):
            try:
                self._follow(job, part, tell)
            except Exception as error:
                logger.error("%s: %s", type(error).__name__, error)
                logger.debug("the traceback of this error:", exc_info=error)
                raise

    def _follow(self, job: Job, part: Path, tell: Tell) -> None:
        capture, cfg = Capture(job.origin), job.config()
        data = divide(cfg, self._data_set(cfg))
        run = _begun(cfg, data, capture, part)
        run.engine.workers = 1  # a study has processes of its own
        write_atomically(part / CONFIG_FILE, cfg.dump())
        run.engine.keep_in(part)
        for line in run.describe():
            logger.info(line)
        total = run.settings.rounds
        score, told = None, 0.0

        def watch(record) -> None:
            nonlocal score, told
            if isinstance(record, RoundRecord):
                score = score if record.avg is None else record.avg
                # Telling takes time, and every core has a run.
                if time.monotonic() - told > _TELL_SECONDS:
                    told = time.monotonic()
                    tell(min(record.round, total), total, score)

        try:
            results = run.follow(watch)
        finally:
            run.history.flush()
        history = run.history
        write_run(part, results, history.head_bytes(), history.own_bytes())
        logger.info("%s", results_table(results))
        _remove(part / PRIVATE)  # a finished run needs no checkpoint

    def _data_set(self, cfg) -> DataSet:
        """The data set of `cfg`, from memory if the last job used the same data set."""
        key = what_to_load(cfg)
        if key != self._key:
            self._key, self._data = None, None  # free memory for the next one
            self._data, self._key = load_data_set(cfg), key
        assert self._data is not None
        return self._data


def _begun(cfg, data, capture: Capture, part: Path) -> Run:
    """Begin the run, from its checkpoint if there is a usable one."""
    path = part / CHECKPOINT_FILE
    if path.exists():
        try:
            return Run(cfg, data, restore_from=path, capture=capture)
        except ConfigError as error:
            logger.warning("the run begins anew: its checkpoint is no use: %s", error)
    _remove(part / PRIVATE)
    return Run(cfg, data, capture=capture)


def _is_of(part: Path, job: Job) -> bool:
    """Whether the folder `part` of a run that was cut off belongs to this job."""
    try:
        return read_cell(part) == job.cell
    except DataError:
        return False


def _is_finished(part: Path) -> bool:
    try:
        return read_results(part).status == "finished"
    except DataError:
        return False


def _moved(part: Path, folder: Path) -> float | None:
    """Give the folder of a finished run its name; returns the run's AVG."""
    results = read_results(part)
    rename_run(results.config, part, folder)
    return results.final.avg


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
