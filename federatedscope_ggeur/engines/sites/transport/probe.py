"""Finds the reason why a server cannot be reached, or why TLS with it fails.

gRPC does not report why a handshake failed, and retries until its time is over. So the
probe repeats the handshake with Python's own TLS, which gives the reason.
"""

from __future__ import annotations

import socket
import ssl
from datetime import datetime, timezone
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError

from .security import AUTHORITY, CERTIFICATE, KEY, Security

#: Seconds for each step of a probe.
PATIENCE = 2.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4  # the HTTP/2 frame that every server sends first
_TLS_ALERT = 0x15
#: OpenSSL's codes of what is wrong with a certificate.
_WHEN = {10: "has expired", 9: "is not valid yet"}
_NAME, _ADDRESS = 62, 64


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


def handshake_problem(
    address: str, security: Security, ends: list[datetime] | None = None
) -> str:
    """The problem that a client with these files has with TLS at `address`.

    "" if there is no problem, or if no server can be reached. The time at which the
    server's certificate ends is added to `ends`.
    """
    try:
        host, port = split_address(address)
        with socket.create_connection((host, port), PATIENCE) as plain:
            plain.settimeout(PATIENCE)
            if not security.authority:
                return _without_tls(plain)
            return _with_tls(plain, host, security, [] if ends is None else ends)
    except (OSError, ValueError):
        return ""


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port; raises `ValueError` without a port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


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


def _without_tls(plain: socket.socket) -> str:
    plain.sendall(_PREFACE)
    try:
        said = plain.recv(9)
    except ConnectionError:
        said = b""
    except OSError:  # nothing within the time
        return ""
    if not said or said[0] == _TLS_ALERT:
        return (
            f"the server requires TLS; set {AUTHORITY} to the file with its authority"
        )
    return ""


def _with_tls(
    plain: socket.socket, host: str, security: Security, ends: list[datetime]
) -> str:
    try:
        context = ssl.create_default_context(cafile=security.authority)
        if security.certificate:
            context.load_cert_chain(security.certificate, security.key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{AUTHORITY}, {CERTIFICATE}: {error}") from error
    context.set_alpn_protocols(["h2"])
    try:
        secured = context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        return _of_certificate(error, host, security)
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"):
            return (
                f"the server does not use TLS; set {CERTIFICATE} and {KEY} on the "
                f"server, or remove {AUTHORITY} ('{security.authority}') here"
            )
        return _of_own(str(error.reason or error), security)
    except ConnectionError:
        return f"the server does not talk TLS: take {AUTHORITY} away here, or set its"
    with secured:
        try:
            # Under TLS 1.3 a server checks our certificate only after the handshake.
            secured.sendall(_PREFACE)
            said = secured.recv(9)
        except (ssl.SSLError, ConnectionError) as error:
            return _of_own(str(getattr(error, "reason", None) or error), security)
        if not said:
            return _of_own("the server closed the connection", security)
        peer: dict = secured.getpeercert() or {}  # verified, so it is not empty
    end = ssl.cert_time_to_seconds(peer["notAfter"])
    ends.append(datetime.fromtimestamp(end, timezone.utc))
    return ""


def _of_certificate(
    error: ssl.SSLCertVerificationError, host: str, security: Security
) -> str:
    code, said = error.verify_code, error.verify_message
    file = f"{AUTHORITY} ('{security.authority}')"
    if when := _WHEN.get(code):
        return (
            f"the server's certificate, or one of {file}, {when} ({said}); make a "
            f"new {CERTIFICATE} for the server, or correct the clocks"
        )
    if code in (_NAME, _ADDRESS):
        return (
            f"the server's {CERTIFICATE} is not for {host!r} ({said}); make one with "
            "this name, or set distribute.server_host to a name in the certificate"
        )
    return (
        f"the server's certificate was not signed by the authority in {file} "
        f"({said}); ask the person who runs the server for the right file"
    )


def _of_own(said: str, security: Security) -> str:
    if not security.certificate:
        return (
            f"the server requires certificates of clients ({said}); set "
            f"{CERTIFICATE} and {KEY}"
        )
    return (
        f"the server refuses this client's {CERTIFICATE} ('{security.certificate}'; "
        f"{said}); it must be signed by the authority that the server trusts, and "
        "must not have expired"
    )
