"""The ClientApp: answers for the site at which it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from federatedscope_ggeur.cfg_ggeur.run_settings import experiment_name
from federatedscope_ggeur.errors import ConfigError, GGEURError, without_folders
from federatedscope_ggeur.printable import get_logger

from ..sites.leading import failed
from ..sites.roles import check_role, role_config, transport_settings
from ..sites.site_folder import ResumedSite
from .records import content_of, envelopes_of
from .server import settings_in

logger = get_logger(__name__)

#: The key of ``--node-config`` that names the site's file, and Flower's own.
SITE, PARTITION = "site", "partition-id"


def client_app(federation: Mapping[str, Any]) -> ClientApp:
    """The ClientApp of a federation's app folder, with the federation's settings.

    These only count in simulation: at a real site its own file names data and settings.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        try:
            cfg, folder = _of_node(federation, context)
            most = transport_settings(cfg).max_message
            asked = envelopes_of(message.content, "the server", most)
            site = ResumedSite(cfg, folder, str(context.run_id), "flower")
            replies = site.answer(asked)
        except GGEURError as error:
            logger.warning("%s", error)
            replies = [failed(without_folders(str(error)))]
        return Message(content_of(replies), reply_to=message)

    return app


def _of_node(federation: Mapping[str, Any], context: Context) -> tuple[Any, Path]:
    """The settings of the client at this node, and its folder."""
    path, partition = (context.node_config.get(key) for key in (SITE, PARTITION))
    if path is not None:
        cfg = role_config(str(path), "client")
        return cfg, Path(cfg.outdir, experiment_name(cfg)).absolute()
    if partition is None:
        raise ConfigError(
            f"its SuperNode has no --node-config '{SITE}=\"/path/to/site.yaml\"'"
        )
    number = str(int(partition) + 1)
    own = "distribute.role", "client", "distribute.data_idx", number
    check_role(cfg := settings_in(federation, context, *own), "client")
    sites = Path(cfg.outdir, f"{experiment_name(cfg)}_sites").absolute()
    return cfg, sites / f"client_{number}"
