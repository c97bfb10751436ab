"""Leads a federation of real sites, or takes part in one."""

from __future__ import annotations

import time
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.tracking import experiment_name
from federatedscope_ggeur.engines.flower.app_folder import new_run_id, write_app
from federatedscope_ggeur.engines.flower.programs import (
    Programs,
    SuperLink,
    start_supernode,
    wait_for,
)
from federatedscope_ggeur.engines.flower.resident import SOCKET, serve_site
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

#: Seconds until a SuperNode that has ended is started again, and for its last message.
_PAUSE, _LAST = 10.0, 60.0


def lead(cfg) -> Path:
    """Lead the federation of the server's file `cfg`; returns the run's folder.

    Raises
    ------
    GGEURError
        The files cannot be used, or the run failed.
    """
    keys = sorted(Path(cfg.ggeur.node_keys).glob("*.pub"))
    if not keys:
        raise ConfigError(
            f"ggeur.node_keys: '{cfg.ggeur.node_keys}' holds no public key (*.pub)"
        )
    security = transport_settings(cfg).security
    if not (security.certificate and security.authority):
        raise ConfigError(
            "ggeur.tls: keys of SuperNodes need TLS: set certificate, key, authority"
        )
    security.server_credentials()  # checks the files
    host, port = cfg.distribute.server_host, int(cfg.distribute.server_port)
    with Programs() as programs:
        app = programs.folder / "app"
        write_app(app, cfg, _run_id(cfg))
        superlink = SuperLink(programs, host, port, security, keys)
        superlink.start()
        logger.info("listening on %s:%d; waiting for %d sites", host, port, len(keys))
        return superlink.run(app, cfg)


def take_part(cfg, new_run: bool = False) -> None:
    """Take part as the site of the file `cfg`: run its resident and its SuperNode.

    Parameters
    ----------
    cfg : CfgNode
    new_run : bool
        See `serve_site`.

    Raises
    ------
    ConfigError, DataError
        The files or the data cannot be used.
    """
    security = transport_settings(cfg).security
    security.channel_credentials()  # checks the files
    address = f"{cfg.distribute.server_host}:{cfg.distribute.server_port}"
    folder = Path(cfg.outdir, experiment_name(cfg))
    with Programs() as programs:
        socket, start_at = programs.folder / SOCKET, 0.0

        def keep_supernode() -> None:
            """Start the SuperNode; start it again a while after it has ended."""
            nonlocal start_at
            process, now = programs.running.get("supernode"), time.monotonic()
            if process is not None and process.poll() is None:
                start_at = now + _PAUSE
            elif now >= start_at:
                if process is not None:
                    said = programs.words("supernode")
                    logger.warning("the SuperNode has ended: %s", said)
                start_supernode(
                    programs,
                    "supernode",
                    address,
                    socket,
                    security.authority,
                    cfg.ggeur.node_keys,
                )

        serve_site(cfg, folder, new_run, socket, meanwhile=keep_supernode)
        _await_sent(programs)


def _await_sent(programs: Programs) -> None:
    """Wait until the SuperNode has sent the resident's last answer."""
    log = programs.folder / "supernode.log"

    def is_sent() -> bool:
        said = log.read_text(errors="replace")
        return said.count("Sent successfully") >= said.count("Received successfully")

    wait_for(is_sent, _LAST)


def _run_id(cfg) -> str:
    """The run's id. It is kept beside the checkpoint, for a run that goes on."""
    save_to, restore_from = cfg.federate.save_to, cfg.federate.restore_from
    path = Path(f"{restore_from or save_to}.run")
    if restore_from and path.exists():
        return path.read_text(encoding="utf-8").strip()
    run = new_run_id()
    if save_to:
        write_atomically(f"{save_to}.run", f"{run}\n", mode=0o600)
    return run
