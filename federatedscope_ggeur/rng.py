"""Seeded random generators. Each purpose has its own key, and so its own generator.

A generator depends on its key alone, never on how many numbers were drawn before. So
clients draw the same numbers in any order and in any process.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch


def derive_seed(seed: int, *key: int | str) -> int:
    """A seed of 63 bits that depends on `seed` and on each part of `key`.

    The type and the length of each part count. So ``(1, 23)`` differs from ``(12, 3)``,
    and the number 1 differs from the text "1".
    """
    # Most seeds come once, so `_part` need not remember them.
    data = _part.__wrapped__(int(seed)) + "".join(map(_part, key))
    # A part may be a file's name, which may hold bytes that are not UTF-8.
    encoded = data.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(encoded, digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@lru_cache(maxsize=4096, typed=True)
def _part(part: int | str) -> str:
    if isinstance(part, str):
        return f"s{len(part)}:{part};"
    text = str(int(part))
    return f"i{len(text)}:{text};"


def torch_generator(
    seed: int, *key: int | str, device: torch.device | None = None
) -> torch.Generator:
    """A `torch.Generator`, seeded by ``(seed, *key)``; of the CPU by default.

    A GPU's generator draws other numbers than the CPU's. They repeat on one kind of GPU
    and one release of torch.
    """
    return new_generator(device).manual_seed(derive_seed(seed, *key))


def new_generator(device: torch.device | None = None) -> torch.Generator:
    """A generator of a device; of the CPU by default."""
    return torch.Generator() if device is None else torch.Generator(device)


def numpy_generator(seed: int, *key: int | str) -> np.random.Generator:
    """A `numpy.random.Generator`, seeded by ``(seed, *key)``."""
    return np.random.default_rng(derive_seed(seed, *key))
