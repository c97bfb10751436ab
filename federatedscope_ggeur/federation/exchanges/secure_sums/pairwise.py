"""Makes keys for pairs of clients, and masks from these keys; pure functions.

The primitives come from the package `cryptography` (the extra ``[privacy]``). Functions
import it when they need it; this module does not.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
CCS 2017. This module has the paper's pairwise masks, but no recovery of lost clients.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from federatedscope_ggeur.errors import MessageError

NAME = b"ggeur secure sum 1"
KEY_BYTES, SESSION_BYTES = 32, 16


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


def pair_info(stage: str, one: int, other: int, bound: bytes) -> bytes:
    """The context of a pair's key: the stage, the two clients, and `bound`.

    `bound` is the digest of all that the server has sent.
    """
    low, high = sorted((one, other))
    return b"|".join([NAME, stage.encode(), b"%d" % low, b"%d" % high, bound])


def stream(shared: bytes, session: bytes, info: bytes, length: int) -> np.ndarray:
    """Draw `length` uint64 numbers from ChaCha20, keyed by `shared` and `info`.

    The key comes from HKDF-SHA256. Each `info` gives another key, so nonce and counter
    can begin at 0.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), KEY_BYTES, salt=session, info=info).derive(shared)
    made = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    data = made.update(bytes(8 * length))
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def mask(
    number: int,
    shared: Mapping[int, bytes],
    session: bytes,
    stage: str,
    bound: bytes,
    length: int,
) -> np.ndarray:
    """The mask of client k in one stage: uint64 [length].

    It is ``sum_{j>k} stream_kj - sum_{j<k} stream_kj`` modulo 2^64.

    Parameters
    ----------
    number : int
        k.
    shared : mapping from client number to bytes
        The `shared_secret` with every other client of the roster.
    """
    total = np.zeros(length, dtype=np.uint64)
    for other, secret in shared.items():
        info = pair_info(stage, number, other, bound)
        part = stream(secret, session, info, length)
        if other > number:
            total += part
        else:
            total -= part
    return total


def fingerprint(roster: Iterable[int], keys: Sequence[bytes]) -> str:
    """A fingerprint of all keys, 8 words of 4 hex digits, to compare by telephone."""
    return words(digest("roster keys", *roster, *keys))


def words_of(number: int, roster: Iterable[int], keys: Sequence[bytes]) -> str:
    """The words that client `number` reads out by telephone.

    Each client has different words, so nobody can copy them from their own terminal.
    The words are long, because a server that makes up keys could search for two lists
    of keys with the same words.
    """
    return words(digest("words", number, *roster, *keys))


def words(data: bytes) -> str:
    """The first 128 bits of `data` as 8 words of 4 hex digits."""
    text = data.hex()[:32]
    return " ".join(text[i : i + 4] for i in range(0, 32, 4))


def signed_bytes(session: bytes, number: int, key: bytes, commitment: bytes) -> bytes:
    """The bytes that a client signs: its mask key and commitment, for one session."""
    return digest("ggeur mask key 2", session, number, key, commitment)


def _private(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)
