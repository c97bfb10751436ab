"""Runs a whole federation on this machine, in Flower's processes, on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.plugins import plugin_folders
from federatedscope_ggeur.cfg_ggeur.run_settings import divides_by_domain
from federatedscope_ggeur.engines.flower.app_folder import write_app
from federatedscope_ggeur.engines.flower.programs import (
    LOOPBACK,
    Programs,
    SuperLink,
    free_port,
    program,
    start_supernode,
)
from federatedscope_ggeur.engines.flower.resident import SOCKET
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.transport import Security

logger = get_logger(__name__)


class LocalFederation:
    """A SuperLink, and a SuperNode and a resident for each client.

    Parameters
    ----------
    programs : Programs
        Starts the processes, and ends them.
    cfg : CfgNode
        The settings of a run on one machine.

    Attributes
    ----------
    clients : int
    superlink : SuperLink

    Raises
    ------
    ConfigError, DataError
        The data cannot be read or divided, or Flower is missing.
    """

    def __init__(self, programs: Programs, cfg):
        program("flower-supernode")
        data = load_federated_data(cfg)
        self.clients = len(data.clients)
        changes = ["federate.mode", "distributed"]
        changes += ["federate.client_num", str(self.clients)]
        if divides_by_domain(cfg):
            changes += ["data.splitter", "iid"]
        if ledger := cfg.ggeur.privacy.dp.ledger:
            # The sites' folders are removed after the run; the ledger must stay.
            changes += ["ggeur.privacy.dp.ledger", str(Path(ledger).resolve())]
        # So that the other processes find its plugins, too.
        places = [*plugin_folders(cfg.ggeur.plugins), os.environ.get("PYTHONPATH", "")]
        programs.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        self._programs, self._cfg = programs, cfg
        self._changes = changes
        port = free_port()
        self._address = f"{LOOPBACK}:{port}"
        self.superlink = SuperLink(programs, LOOPBACK, port, Security())

    def start(self) -> None:
        """Start all processes but the run itself.

        Raises
        ------
        GGEURError
            A process ended at once.
        """
        cfg = self._config("distribute.role", "server")
        write_app(self._programs.folder / "app", cfg)
        for k in range(1, self.clients + 1):
            self.start_resident(k)
        self.superlink.start()
        for k in range(1, self.clients + 1):
            self.start_supernode(k)

    def start_resident(self, number: int) -> None:
        """Start the resident of a client."""
        client = "distribute.role", "client", "distribute.data_idx", str(number)
        site = self.site(number)
        site.mkdir(mode=0o700, exist_ok=True)
        (site / "site.yaml").write_text(self._config(*client).dump(), encoding="utf-8")
        command = [sys.executable, "-m", "federatedscope_ggeur", "site"]
        command += ["--cfg", str(site / "site.yaml"), "--folder", str(site)]
        self._programs.start(f"resident {number}", command)

    def start_supernode(self, number: int) -> None:
        """Start the SuperNode of a client."""
        socket = self.site(number) / SOCKET
        start_supernode(self._programs, f"supernode {number}", self._address, socket)

    def site(self, number: int) -> Path:
        """A client's own folder."""
        return self._programs.folder / f"site{number}"

    def run(self, settings: Sequence[str] = ()) -> Path:
        """See `SuperLink.run`."""
        return self.superlink.run(self._programs.folder / "app", self._cfg, settings)

    def _config(self, *more: str):
        return load_config(self._cfg, [*self._changes, *more], on_fs=True)


def run_locally(cfg) -> Path:
    """Run `cfg` through Flower on this machine; returns the run's folder.

    Raises
    ------
    GGEURError
        Flower is missing, or the run failed.
    """
    with Programs() as programs:
        one = LocalFederation(programs, cfg)
        one.start()
        logger.info("Flower: a SuperLink and %d sites on this machine", one.clients)
        return one.run()
