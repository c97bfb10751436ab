"""Makes masks from the keys of pairs of clients; pure functions.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
CCS 2017. This module has the paper's pairwise masks, but no recovery of lost clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from federatedscope_ggeur.crypto import KEY_BYTES, digest, words

NAME = b"ggeur secure sum 1"
SESSION_BYTES = 16


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


def signed_bytes(session: bytes, number: int, key: bytes, commitment: bytes) -> bytes:
    """The bytes that a client signs: its mask key and commitment, for one session."""
    return digest("ggeur mask key 2", session, number, key, commitment)
