"""Checks the signatures of mask keys, for clients that do not trust the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from federatedscope_ggeur.crypto import KEY_BYTES
from federatedscope_ggeur.errors import ConfigError, MessageError, setting

from .messages import MaskedRequest
from .pairwise import signed_bytes

_LINE = re.compile(rf"\s*(\d{{1,6}})\s+([0-9a-fA-F]{{{2 * KEY_BYTES}}})\s*(#.*)?")


def verifying_keys(path: str | Path) -> dict[int, bytes]:
    """Read the Ed25519 public keys of clients from a file.

    Each client has a line ``<client number> <64 hex digits>``. Lines that begin with #
    are comments.

    Raises
    ------
    ConfigError
        The file cannot be read, a line has a wrong form, or a client or key occurs
        twice.
    """
    where = setting("secure_sums_trust")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where}: '{path}' cannot be read: {reason}") from error
    keys: dict[int, bytes] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigError(
                f"{where}: '{path}', line {place}: expected a client's number and the "
                "64 hex digits of its Ed25519 public key"
            )
        number, key = int(found[1]), bytes.fromhex(found[2])
        if number in keys or key in keys.values():
            raise ConfigError(
                f"{where}: '{path}', line {place}: this client or key occurs "
                "twice; leave one of the lines out"
            )
        keys[number] = key
    return keys


class Signer:
    """A client's signing key.

    Parameters
    ----------
    path : str
        The PEM file of the client's Ed25519 private key; ``{client}`` in the path
        stands for `number`.
    number : int

    Raises
    ------
    ConfigError
        The file cannot be read, or it holds no Ed25519 key.
    """

    def __init__(self, path: str, number: int):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        where, self._number = setting("secure_sums_signing_key"), number
        file = Path(path.replace("{client}", str(number)))
        try:
            key: Any = load_pem_private_key(file.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            reason = (
                getattr(error, "strerror", None)
                or "it has no private key in PEM format"
            )
            raise ConfigError(f"{where}: '{file}' cannot be used: {reason}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{where}: '{file}' holds no Ed25519 key")
        self._key = key

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, session: bytes, key: bytes, commitment: bytes) -> bytes:
        """The signature of the client's mask key and commitment: 64 bytes."""
        return self._key.sign(signed_bytes(session, self._number, key, commitment))


def check_signatures(trusted: dict[int, bytes], request: MaskedRequest) -> None:
    """Raise `MessageError` unless each client has signed its key and commitment."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for number, key, commitment, signature in zip(
        request.roster, request.keys, request.commitments, request.signatures
    ):
        if number not in trusted:
            problem = (
                f"client {number} is missing in the file of "
                f"{setting('secure_sums_trust')}"
            )
        elif not signature:
            problem = f"the key of client {number} is not signed"
        else:
            verifier = Ed25519PublicKey.from_public_bytes(trusted[number])
            signed = signed_bytes(request.session, number, key, commitment)
            try:
                verifier.verify(signature, signed)
                continue
            except InvalidSignature:
                problem = f"the key of client {number} is not signed by that client"
        raise MessageError(problem, field="signatures", sender="the server")
