"""Digests, and keys that two parties share: what several parts need of cryptography.

The primitives come from the package `cryptography` (the extra ``[privacy]``). Functions
import it when they need it; this module does not.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from federatedscope_ggeur.errors import MessageError

KEY_BYTES = 32


def digest(*fields: bytes | str | int | float) -> bytes:
    """SHA-256 of `fields`, 32 bytes; types and lengths are hashed, too."""
    one = hashlib.sha256()
    for part in fields:
        data = part if isinstance(part, bytes) else repr(part).encode()
        one.update(f"{type(part).__name__}{len(data)}:".encode())
        one.update(data)
    return one.digest()


def new_secret() -> bytes:
    """Make a new X25519 secret with the operating system's generator."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of `secret`: 32 bytes."""
    return _private(secret).public_key().public_bytes_raw()


def shared_secret(secret: bytes, peer: bytes) -> bytes:
    """The X25519 secret shared with the public key `peer`: 32 bytes.

    Raises
    ------
    MessageError
        `peer` is one of the few invalid keys that give the same secret with every key.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        return _private(secret).exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise MessageError(
            "an invalid key: it gives the same secret with every other key",
            field="keys",
            sender="the server",
        ) from error


def words(data: bytes) -> str:
    """The first 128 bits of `data` as 8 words of 4 hex digits."""
    text = data.hex()[:32]
    return " ".join(text[i : i + 4] for i in range(0, 32, 4))


def _private(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)
