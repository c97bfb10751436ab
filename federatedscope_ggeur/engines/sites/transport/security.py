"""Makes TLS credentials, and tokens that prove a client's number."""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from federatedscope_ggeur.errors import ConfigError, refusing
from federatedscope_ggeur.files import read_regular

CERTIFICATE, KEY = "ggeur.tls.certificate", "ggeur.tls.key"
AUTHORITY = "ggeur.tls.authority"
SECRET, TOKEN = "ggeur.join_secret", "ggeur.join_token"

#: What the name of the list of withdrawn tokens ends with, beside the secret.
DENIED = ".denied"
_SHORTEST_SECRET = 16
_TOKEN = re.compile(r"[1-9][0-9]{0,17}:[0-9a-f]{64}")


@dataclass(frozen=True)
class Security:
    """The paths of files for TLS and tokens; "" means that a file is not used.

    Attributes
    ----------
    certificate, key : str
        The PEM files of this side's certificate (with its chain) and private key. They
        switch TLS on at a server. A client presents them to the server.
    authority : str
        The PEM file of the authorities that this side trusts. It switches TLS on at a
        client. A server that has it admits only clients with a certificate.
    join_secret : str
        The server's file with the secret from which tokens are made.
    join_token : str
        The client's file with its token.
    """

    certificate: str = ""
    key: str = ""
    authority: str = ""
    join_secret: str = ""
    join_token: str = ""

    def server_credentials(self) -> Any:
        """Make gRPC's credentials for a server; None without TLS.

        Raises
        ------
        ConfigError
            A file is missing or broken, or a setting that belongs to it is missing.
        """
        pair = self._pair()
        if pair is None:
            if self.authority:
                raise ConfigError(
                    f"{AUTHORITY} ('{self.authority}') is set without {CERTIFICATE}; "
                    f"set {CERTIFICATE} and {KEY}, which a server needs for TLS"
                )
            return None
        from grpc import ssl_server_credentials

        authority = self._authority()
        return ssl_server_credentials([pair], authority, authority is not None)

    def channel_credentials(self) -> Any:
        """Make gRPC's credentials for a client; None without TLS.

        Raises `ConfigError` in the same cases as `server_credentials`.
        """
        pair = self._pair()
        if not self.authority:
            if pair is not None:
                raise ConfigError(
                    f"{CERTIFICATE} ('{self.certificate}') is set without "
                    f"{AUTHORITY}; set {AUTHORITY}, which a client needs to check "
                    "the server"
                )
            return None
        from grpc import ssl_channel_credentials

        key, certificate = pair or (None, None)
        return ssl_channel_credentials(self._authority(), key, certificate)

    def secret(self) -> bytes | None:
        """Read the server's secret, without white space around it; None if none is set.

        Raises
        ------
        ConfigError
            The file cannot be read, or the secret is shorter than 16 bytes.
        """
        if not self.join_secret:
            return None
        secret = _read(SECRET, self.join_secret).strip()
        if len(secret) < _SHORTEST_SECRET:
            raise ConfigError(
                f"{SECRET}: '{self.join_secret}' holds {len(secret)} bytes, but a "
                f"secret needs at least {_SHORTEST_SECRET}; make one by: openssl "
                "rand -hex 32"
            )
        return secret

    def refusal(self, number: int, token: str) -> str:
        """Why client `number` may not join by this token; "" if it may.

        Without a secret every client may. The list of withdrawn tokens is read anew
        each time; if it cannot be read, nobody may join.

        Raises
        ------
        ConfigError
            The file of the secret cannot be used.
        """
        secret = self.secret()
        if secret is None:
            return ""
        try:
            withdrawn = self.withdrawn()
        except ConfigError as error:
            return str(error)
        if number in withdrawn:
            return (
                f"the token of client {number} has been withdrawn; ask the person who "
                "runs the server"
            )
        return check_token(secret, number, token)

    def withdrawn(self) -> set[int]:
        """The numbers of clients whose tokens are withdrawn.

        Raises
        ------
        ConfigError
            The list is there, but cannot be read.
        """
        if not self.join_secret:
            return set()
        what = "the server cannot read which tokens are withdrawn"
        with refusing(what), suppress(FileNotFoundError):
            text = read_regular(f"{self.join_secret}{DENIED}").decode("utf-8")
            return {int(line.split()[0]) for line in text.splitlines() if line.strip()}
        return set()

    def token(self) -> str:
        """Read the client's token; "" if none is set.

        Raises
        ------
        ConfigError
            The file cannot be read, or it holds no token.
        """
        if not self.join_token:
            return ""
        token = _read(TOKEN, self.join_token).decode("ascii", "replace").strip()
        if not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"{TOKEN}: '{self.join_token}' holds no token of the form "
                "<number>:<64 hexadecimal digits>; ask the person who runs the "
                "server for your token"
            )
        return token

    def _pair(self) -> tuple[bytes, bytes] | None:
        if not self.certificate and not self.key:
            return None
        pair = {CERTIFICATE: self.certificate, KEY: self.key}
        for name, other in ((CERTIFICATE, KEY), (KEY, CERTIFICATE)):
            if not pair[name]:
                raise ConfigError(
                    f"{other} ('{pair[other]}') is set without {name}; set both or "
                    "neither"
                )
        certificate = _certificates(CERTIFICATE, self.certificate)
        key = _read(KEY, self.key)
        with refusing(
            f"{KEY}: '{self.key}' is not the unencrypted PEM key of the certificate "
            f"'{self.certificate}'"
        ):
            # An empty password: OpenSSL would otherwise ask for one on the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certificate, self.key, password=""
            )
        return key, certificate

    def _authority(self) -> bytes | None:
        return _certificates(AUTHORITY, self.authority) if self.authority else None


def make_token(secret: bytes, number: int) -> str:
    """Make the token of a client: ``<number>:<hex HMAC-SHA256 of the number>``."""
    digest = hmac.new(secret, f"ggeur client {number}".encode(), hashlib.sha256)
    return f"{number}:{digest.hexdigest()}"


def check_token(secret: bytes, number: int, token: str) -> str:
    """Check the token of client `number`; returns the problem, or "" if it is right.

    The time of the check reveals nothing about the right token.
    """
    if not token:
        return (
            f"client {number} sent no token, but this server requires one; set "
            f"{TOKEN} to the file with the client's token"
        )
    expected = make_token(secret, number).encode()
    if hmac.compare_digest(expected, token.encode("utf-8", "replace")):
        return ""
    named = token.partition(":")[0]
    if _TOKEN.fullmatch(token) and named != str(number):
        return (
            f"client {number} sent the token of client {named}; set {TOKEN} to "
            "the file with its own"
        )
    return (
        f"client {number} sent a token that was not made from this server's "
        f"{SECRET}; ask the person who runs the server for a new one"
    )


def _read(name: str, path: str) -> bytes:
    with refusing(f"{name}: cannot read '{path}'"):
        return read_regular(path)


def _certificates(name: str, path: str) -> bytes:
    data = _read(name, path)
    with refusing(f"{name}: '{path}' holds no certificate in PEM form"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
    return data
