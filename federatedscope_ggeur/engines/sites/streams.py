"""Reads the settings of a distributed run's streams."""

from __future__ import annotations

import os

from federatedscope_ggeur.cfg_ggeur.load import OTHER_KEYS
from federatedscope_ggeur.printable import get_logger

from .transport import Security, TransportSettings

logger = get_logger(__name__)


def transport_settings(cfg) -> TransportSettings:
    """Make the settings of the transport from `cfg.distribute` and `cfg.ggeur`."""
    ggeur, packs = cfg.ggeur, _of(cfg, "grpc_compression")
    if packs.lower() != "nocompression":
        logger.info(
            "distribute.grpc_compression: %s does nothing here: messages go as they "
            "are, since parameters hardly shrink",
            packs,
        )
    ways = "grpc_max_send_message_length", "grpc_max_receive_message_length"
    longest = min(_of(cfg, way) for way in ways)
    return TransportSettings(
        max_message=longest,
        max_frame=min(TransportSettings.max_frame, longest),
        join_deadline=ggeur.deadline.join,
        security=Security(
            certificate=ggeur.tls.certificate,
            key=ggeur.tls.key,
            authority=ggeur.tls.authority,
            # Absolute: it is read whenever a client joins, in whatever folder.
            join_secret=ggeur.join_secret and os.path.abspath(ggeur.join_secret),
            join_token=ggeur.join_token,
        ),
        http_proxy=_of(cfg, "grpc_enable_http_proxy"),
    )


def _of(cfg, name: str):
    """FS's key ``distribute.<name>``; its default if the config lacks the key."""
    return cfg.distribute.get(name, OTHER_KEYS[f"distribute.{name}"].default)
