"""The ServerApp: leads the run over Flower's Grid."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.tracking import experiment_name
from federatedscope_ggeur.engines.distributed_data import server_data
from federatedscope_ggeur.engines.federation import Federation
from federatedscope_ggeur.engines.flower.hub import GridHub
from federatedscope_ggeur.engines.leading import Leader
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.engines.watch import Watch, closing
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import new_run_folder
from federatedscope_ggeur.reporting.log_file import handled_by, logging_to
from federatedscope_ggeur.reporting.run_files import CONFIG_FILE, LOG_FILE

logger = get_logger(__name__)


def settings_in(federation: Mapping[str, Any], context: Context, *own: str):
    """The settings of the app, with those of ``flwr run -c`` and then `own`.

    This process changes to the folder that relative paths are seen from.
    """
    given = context.run_config
    os.chdir(str(given["folder"]))
    more = [*shlex.split(str(given["settings"])), *own]
    return load_config(federation, more, on_fs=True, beside=Path.cwd())


def server_app(federation: Mapping[str, Any]) -> ServerApp:
    """The ServerApp of a federation's app folder, with the federation's settings."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        if threading.current_thread() is threading.main_thread():  # not in simulation
            # Flower's own handler ends this process before any file is written.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        shown = logging.StreamHandler(sys.stdout)
        shown.setLevel(logging.INFO)
        try:
            with handled_by(shown):
                _lead(grid, settings_in(federation, context))
        except GGEURError as error:
            raise SystemExit(f"error: {error}") from error

    return app


def _lead(grid: Grid, cfg) -> None:
    """Lead the federation to its end."""
    torch.set_num_threads(int(cfg.ggeur.num_threads))
    folder = new_run_folder(cfg.outdir, experiment_name(cfg)).absolute()
    write_atomically(folder / CONFIG_FILE, cfg.dump())
    transport = transport_settings(cfg)
    goes_on, security = bool(cfg.federate.restore_from), transport.security
    hub = GridHub(grid, transport.max_message, goes_on, security)

    def federation(dismiss) -> Federation:
        data, proven = server_data(cfg), security.secret() is not None
        return Federation(
            cfg, data, dismiss, "flower", folder, proven, _to_go_on, begins=True
        )

    with logging_to(folder / LOG_FILE), closing(Watch(folder, "server", dict)) as watch:
        logger.info("run folder: %s", folder)
        leader = Leader(cfg, federation, hub)
        watch.describe = leader.leading.status
        logger.debug("%s", leader.lead())


def _to_go_on(path: Path) -> str:
    settings = f"settings='federate.restore_from {path.absolute()}'"
    return f'flwr run APP NAME -c "{settings}"'
