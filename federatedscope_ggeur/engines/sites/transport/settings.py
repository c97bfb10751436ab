"""The settings of both ends of the transport, and gRPC's options for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from federatedscope_ggeur.errors import ConfigError

from .security import Security

try:
    import grpc
except ImportError:  # an extra: only distributed mode needs it
    grpc = None

SERVICE, METHOD = "federatedscope_ggeur.Transport", "Join"
#: The trailer in which the server says why it ends a stream.
REASON = "ggeur-reason-bin"

#: Bytes of the longest header frame.
HEADER_LIMIT = 8 * 1024
#: Bytes that a peer may send before it has joined.
JOIN_LIMIT = 64 * 1024
#: Seconds that a server waits at most for the first message of an open call.
JOIN_PATIENCE = 5.0

_HANDSHAKE_PATIENCE = 10_000  # ms
# A frame's tag beside its bytes, with room to spare.
_FRAME_OVERHEAD = 1024


@dataclass(frozen=True)
class TransportSettings:
    """The settings that both ends of a stream use.

    Attributes
    ----------
    max_message : int
        The largest number of bytes of a message. The receiver refuses a longer one
        before it takes the data into memory.
    max_frame : int
        The largest number of bytes of one frame. Messages are cut into frames.
    keepalive : float
        After so many seconds of silence, a side asks whether its peer is still there.
        The peer has twice this time to answer.
    join_deadline : float
        The seconds within which a client must reach the server.
    security : Security
        The paths of the files for TLS and tokens.
    http_proxy : bool
        Whether a client uses the proxy that the environment names.

    Raises
    ------
    ConfigError
        A value is out of its range.
    """

    max_message: int
    max_frame: int = 1024 * 1024
    keepalive: float = 20.0
    join_deadline: float = 300.0
    security: Security = field(default_factory=Security)
    http_proxy: bool = False

    def __post_init__(self):
        for name in ("max_message", "max_frame", "keepalive", "join_deadline"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"transport: {name} must be above 0, got {value}")


def require_grpc() -> ModuleType:
    """Import the gRPC package; raises `ConfigError` if it is not installed."""
    if grpc is None:
        raise ConfigError(
            "distributed mode needs the package grpcio, which is not installed: "
            "pip install 'federatedscope-ggeur[sites]'"
        )
    return grpc


def server_options(settings: TransportSettings) -> list[tuple[str, Any]]:
    """gRPC's options of the server."""
    milliseconds = _milliseconds(settings.keepalive)
    return [
        *_options(settings),
        # Otherwise a second server on the same port would take half of the clients.
        ("grpc.so_reuseport", 0),
        # The pings of clients must not count as abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", min(1000, milliseconds)),
        ("grpc.http2.max_ping_strikes", 0),
        # A peer that begins TLS and then stops may not hold a connection longer.
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_PATIENCE),
    ]


def open_channel(address: str, settings: TransportSettings) -> Any:
    """Open a client's gRPC channel to `address`, with TLS if `settings` ask for it."""
    grpc = require_grpc()
    options = [
        *_options(settings),
        ("grpc.enable_http_proxy", int(settings.http_proxy)),
        # A client may start long before the server: it must not sleep for minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    credentials = settings.security.channel_credentials()
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


def _options(settings: TransportSettings) -> list[tuple[str, Any]]:
    longest = max(settings.max_frame, HEADER_LIMIT) + _FRAME_OVERHEAD
    milliseconds = _milliseconds(settings.keepalive)
    return [
        ("grpc.max_send_message_length", longest),
        ("grpc.max_receive_message_length", longest),
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", 2 * milliseconds),
        # Newer releases wait a minute for the answer to a ping unless told otherwise.
        ("grpc.http2.ping_timeout_ms", 2 * milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC unpacks a compressed message whole before it checks the length: 1 MiB
        # could become 1 GiB. So frames.py packs and unpacks frames, within limits.
        ("grpc.compression_enabled_algorithms_bitset", 1),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
