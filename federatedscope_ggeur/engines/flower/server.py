"""The ServerApp: leads the run over Flower's Grid."""

from __future__ import annotations

import logging
import secrets
import shlex
import signal
import sys
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.tracking import experiment_name
from federatedscope_ggeur.engines.distributed_data import server_data
from federatedscope_ggeur.engines.federation import Federation, course
from federatedscope_ggeur.engines.flower.carried import SESSION
from federatedscope_ggeur.engines.flower.hub import GridHub
from federatedscope_ggeur.engines.leading import Leading
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.engines.watch import Watch, closing
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import new_run_folder
from federatedscope_ggeur.reporting.log_file import logging_to
from federatedscope_ggeur.reporting.run_files import CONFIG_FILE, LOG_FILE
from federatedscope_ggeur.transport import Envelope

logger = get_logger(__name__)


def server_app(config: Path, run: str) -> ServerApp:
    """The ServerApp of a federation's app folder.

    Parameters
    ----------
    config : path
        The federation's file.
    run : str
        The run's id, in hexadecimal digits. A resident only answers one run.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        given = context.run_config
        settings, folder = shlex.split(str(given["settings"])), str(given["folder"])
        try:
            _serve(grid, config, run, settings, folder)
        except GGEURError as error:
            raise SystemExit(f"error: {error}") from error

    return app


def _serve(
    grid: Grid, config: Path, run: str, settings: list[str], folder: str
) -> None:
    """Lead the federation to its end, with files in `folder`, or else in a new one."""
    # Flower starts this process in the folder of the SuperLink, which all paths are
    # seen from.
    cfg = load_config(config, settings, on_fs=True, beside=Path.cwd())
    torch.set_num_threads(int(cfg.ggeur.num_threads))
    own = Path(folder or new_run_folder(cfg.outdir, experiment_name(cfg)))
    write_atomically(own / CONFIG_FILE, cfg.dump())
    shown = logging.StreamHandler(sys.stdout)
    logging.getLogger("federatedscope_ggeur").addHandler(shown)
    # Flower's own handler ends this process before any file is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log = logging_to(own / LOG_FILE)
    with log, closing(Watch(own, "server", dict)) as watch:
        logger.info("run folder: %s", own)
        try:
            _lead(grid, cfg, run, own, watch)
        except Exception as error:
            logger.error("failed: %s", error)
            raise


def _lead(grid: Grid, cfg, run: str, folder: Path, watch: Watch) -> None:
    data, greeting = server_data(cfg), (run.encode(), secrets.token_bytes(SESSION))
    settings, over = transport_settings(cfg), list[bool]()
    secret = settings.security.secret()
    hub = GridHub(grid, settings, greeting, secret)

    def federation(dismiss) -> Federation:
        proven = secret is not None
        return Federation(
            cfg, data, dismiss, "flower", folder, proven, _to_go_on, begins=True
        )

    def send(kind, numbers, parts, state) -> None:
        for number in numbers:
            hub.send(number, Envelope(kind, state, tuple(parts)))

    def begin() -> None:
        leading.federation.start()
        leading.driver.start(course(leading.federation), end)

    def end(_) -> None:
        logger.debug("%s", leading.federation.write("finished"))
        history = leading.federation.history
        leading.send_finals(
            history.ending(cfg.ggeur.share_results), len(history.rounds)
        )
        over.append(True)

    leading = Leading(federation, send, cfg.ggeur.deadline, begin, hub)
    watch.describe = leading.status
    leading.run(lambda: bool(over))


def _to_go_on(checkpoint: Path) -> str:
    return (
        f"set federate.restore_from {checkpoint}, in the server's file or by "
        "flwr run APP NAME -c \"settings='KEY VALUE'\""
    )
