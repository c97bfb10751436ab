"""Reads the settings of a distributed run's streams, without FederatedScope."""

from __future__ import annotations

from federatedscope_ggeur.transport import Security, TransportSettings


def transport_settings(cfg) -> TransportSettings:
    """Make the settings of the transport from `cfg.distribute` and `cfg.ggeur`."""
    distribute, ggeur = cfg.distribute, cfg.ggeur
    longest = min(
        distribute.grpc_max_send_message_length,
        distribute.grpc_max_receive_message_length,
    )
    return TransportSettings(
        max_message=longest,
        max_frame=min(TransportSettings.max_frame, longest),
        compression=distribute.grpc_compression.lower(),
        join_deadline=ggeur.deadline.join,
        security=Security(
            certificate=ggeur.tls.certificate,
            key=ggeur.tls.key,
            authority=ggeur.tls.authority,
            join_secret=ggeur.join_secret,
            join_token=ggeur.join_token,
        ),
        http_proxy=distribute.grpc_enable_http_proxy,
    )
