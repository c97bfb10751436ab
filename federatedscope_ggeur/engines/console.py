"""A run as a person sees it: messages, a progress bar, a table, a folder of files."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.reporting import (
    Round0,
    RoundRecord,
    new_run_folder,
    results_table,
    write_atomically,
    write_run,
)

logger = logging.getLogger("federatedscope_ggeur")
INTERRUPTED = 130


def run_with_files(cfg) -> int:
    """Run `cfg`, show how it goes, and leave its files in a new folder.

    Returns
    -------
    int
        Exit status: 0, or 130 after an interruption, whose rounds so far are written.

    Raises
    ------
    GGEURError
        The run cannot start or go on; if it had started, log.txt says so too.
    """
    run = Run(cfg)
    folder = new_run_folder(cfg.outdir, _experiment_name(cfg))
    with _logging_to(folder / "log.txt", verbose=cfg.verbose > 0):
        logger.info("run folder: %s", folder)
        write_atomically(folder / "config.yaml", cfg.dump())
        for line in run.describe():
            logger.info(line)
        try:
            return _follow(run, folder)
        except GGEURError as error:
            logger.debug("stopped by an error: %s", error)
            raise


def _follow(run: Run, folder: Path) -> int:
    status, total = 0, run.settings.rounds
    try:
        with _terminate_as_interrupt(), tqdm(total=total, unit="round") as bar:
            run.follow(lambda record: _show(record, bar))
    except KeyboardInterrupt:
        status = INTERRUPTED
        logger.warning(
            "interrupted after %d of %d rounds; the results are of these",
            len(run.rounds),
            total,
        )
    results = run.results()
    write_run(folder, results)
    write_atomically(folder / "head.safetensors", run.head_bytes())
    table = results_table(results)
    logger.debug("%s", table)
    print(table, flush=True)
    logger.info(
        "results.json, metrics.csv, curve.png, head.safetensors are in %s", folder
    )
    return status


def _show(record: Round0 | RoundRecord, bar: tqdm) -> None:
    if isinstance(record, Round0):
        bar.clear()
        logger.info(_round0_line(record))
        bar.refresh()
        return
    bar.update()
    if record.avg is not None:
        bar.set_postfix_str(f"AVG {100 * record.avg:.2f}%")
    logger.debug(
        "round %d: clients %s, AVG %s, loss %s, %.3f s, %d bytes up, %d down",
        record.round,
        record.clients,
        record.avg,
        record.loss,
        record.seconds,
        record.bytes_up,
        record.bytes_down,
    )


def _round0_line(record: Round0) -> str:
    if not record.statistics_bytes_up:
        return (
            f"round 0: no statistics asked for (ggeur.steps []); {record.seconds:.2f} s"
        )
    up = sum(record.statistics_bytes_up.values())
    pairs = record.uploaded_pairs + (record.withheld_pairs or 0)
    return (
        f"round 0: statistics of {record.uploaded_pairs} of {pairs} (client, class) "
        f"pairs up, {up / 1e6:.2f} MB ({up / len(record.clients) / 1e6:.2f} MB a "
        f"client); geometry down {record.geometry_bytes_down / 1e6:.2f} MB, prototypes "
        f"down {record.prototypes_bytes_down / 1e6:.2f} MB; {record.seconds:.2f} s"
    )


def _experiment_name(cfg) -> str:
    """FS's name for an experiment: `expname`, or one made of its main settings."""
    name = cfg.expname or (
        f"{cfg.federate.method}_{cfg.model.type}_on_{cfg.data.type}"
        f"_lr{cfg.train.optimizer.lr}_lstep{cfg.train.local_update_steps}"
    )
    return f"{name}_{cfg.expname_tag}" if cfg.expname_tag else name


@contextmanager
def _logging_to(path: Path, verbose: bool) -> Iterator[None]:
    """Everything into the file; on the console what a person wants to see."""
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    console = logging.StreamHandler()
    console.setLevel(logging.INFO if verbose else logging.WARNING)
    console.setFormatter(logging.Formatter("%(message)s"))
    before = logger.level
    logger.setLevel(logging.DEBUG)
    for handler in (file, console):
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        for handler in (file, console):
            logger.removeHandler(handler)
            handler.close()


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Take SIGTERM (a scheduler's stop) like Ctrl-C, so that results are written."""

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: the caller's signals stay as they are
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
