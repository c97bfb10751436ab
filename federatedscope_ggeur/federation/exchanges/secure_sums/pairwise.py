"""Keys of pairs of clients, and the masks made of them: pure functions on bytes.

The primitives come from the package `cryptography` (the extra ``[privacy]``). It is
imported when a key is made, never with this module.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
CCS 2017: its pairwise masks, without the recovery of clients that drop out.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from federatedscope_ggeur.errors import MessageError

NAME = b"ggeur secure sum 1"
KEY_BYTES, SIGNATURE_BYTES, SESSION_BYTES = 32, 64, 16


def digest(*fields: bytes | str | int | float) -> bytes:
    """SHA-256 of `fields`, told apart by type and length: 32 bytes."""
    one = hashlib.sha256()
    for part in fields:
        data = part if isinstance(part, bytes) else repr(part).encode()
        one.update(f"{type(part).__name__}{len(data)}:".encode())
        one.update(data)
    return one.digest()


def new_secret() -> bytes:
    """A fresh X25519 secret of the operating system's generator."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of `secret`: 32 bytes."""
    return _private(secret).public_key().public_bytes_raw()


def shared_secret(secret: bytes, peer: bytes) -> bytes:
    """X25519 of `secret` and the public key of a `peer`: 32 bytes.

    Raises
    ------
    MessageError
        `peer` is one of the few points that give the same secret with every key.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        return _private(secret).exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise MessageError(
            "a key that makes the same secret with every other one",
            field="keys",
            sender="the server",
        ) from error


def pair_info(stage: str, one: int, other: int, bound: bytes) -> bytes:
    """The purpose of a pair's key: the stage, the two clients, and `bound`.

    `bound` is the digest of all that came down.
    """
    low, high = sorted((one, other))
    return b"|".join([NAME, stage.encode(), b"%d" % low, b"%d" % high, bound])


def stream(shared: bytes, session: bytes, info: bytes, length: int) -> np.ndarray:
    """`length` uint64 of ChaCha20, under the HKDF-SHA256 key of `shared` and `info`.

    Each `info` gives another key, so nonce and counter begin at 0.
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
    """``sum_{j>k} stream_kj - sum_{j<k} stream_kj`` modulo 2^64: uint64 [length].

    Parameters
    ----------
    number : int
        k.
    shared : mapping from client number to bytes
        `shared_secret` with every other client of the roster.
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
    """What clients may compare by telephone: 8 words of 4 hex digits."""
    return _words(digest("roster keys", *roster, *keys))


def words_of(number: int, roster: Iterable[int], keys: Sequence[bytes]) -> str:
    """The words that client `number` reads out. Each client has other words.

    So nobody can copy them from its own terminal. They are not shorter, because a
    server that makes up the keys of both sides could search for two lists of keys with
    the same words.
    """
    return _words(digest("words", number, *roster, *keys))


def _words(data: bytes) -> str:
    text = data.hex()[:32]
    return " ".join(text[i : i + 4] for i in range(0, 32, 4))


def signed_bytes(session: bytes, number: int, key: bytes, commitment: bytes) -> bytes:
    """What a client signs: its mask key and its commitment, for one session."""
    return digest("ggeur mask key 2", session, number, key, commitment)


def _private(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)
