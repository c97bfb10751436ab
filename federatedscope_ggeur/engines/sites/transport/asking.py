"""Asks a server, without joining, whether it can be reached and what it knows."""

from __future__ import annotations

import socket
from datetime import datetime
from pathlib import Path

from .endings import ConnectionLost, Refused
from .frames import Introduction, asking_frame
from .probe import PATIENCE, split_address
from .security import Security
from .settings import (
    ASK,
    REASON,
    SERVICE,
    TransportSettings,
    open_channel,
    require_grpc,
)

_SECONDS = 10.0  # for an answer


def reach_problem(address: str) -> str:
    """The reason why `address` cannot be reached; "" if it can."""
    try:
        socket.create_connection(split_address(address), PATIENCE).close()
    except ConnectionRefusedError:
        return (
            "nothing listens there; check that the server is running and that the "
            "port is right"
        )
    except socket.gaierror as error:
        return f"there is no such host ({error.strerror})"
    except (TimeoutError, socket.timeout):
        return f"no answer within {PATIENCE:g} s; a firewall may block the connection"
    except (OSError, ValueError, OverflowError) as error:
        return str(error)
    return ""


def own_certificate_end(security: Security) -> datetime | None:
    """The time at which this side's certificate expires; None if that is not known.

    Only the package cryptography can tell.
    """
    try:
        from cryptography import x509
    except ImportError:
        return None
    if not security.certificate:
        return None
    data = Path(security.certificate).read_bytes()
    return x509.load_pem_x509_certificate(data).not_valid_after_utc


def ask_server(address: str, number: int, settings: TransportSettings) -> bytes:
    """Ask the server at `address` for the facts that client `number` may know.

    Only the number and the token are sent, and the client does not join.

    Raises
    ------
    Refused
        The server refuses to answer this client, with a reason.
    ConnectionLost
        There is no answer within ten seconds.
    ConfigError
        A file of `settings.security` cannot be used.
    """
    grpc = require_grpc()
    who = Introduction(number, settings.security.token())
    frame = asking_frame(who, settings)
    with open_channel(address, settings) as channel:
        try:
            return channel.unary_unary(f"/{SERVICE}/{ASK}")(frame, timeout=_SECONDS)
        except grpc.RpcError as error:
            for key, value in error.trailing_metadata() or ():
                if key == REASON:
                    reason = " ".join(value.decode(errors="replace").split())
                    raise Refused(reason) from error
            raise ConnectionLost(
                f"no answer ({error.code().name}: {error.details()})"
            ) from error
