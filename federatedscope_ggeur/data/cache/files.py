"""Files of the embedding cache: whole or absent, and with a checksum of their own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import write_atomically

VERSION = 1
_HEADER = "ggeur_embeddings"


class DamagedError(Exception):
    """A file that exists and is not what was written, or not what was asked for."""


def write_in_cache(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whose folder is made, whole or not at all.

    Raises
    ------
    ConfigError
        The file cannot be written; it says which setting to change.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise cannot_write(path, error) from error
    except ConfigError as error:
        raise cannot_write(path, error.__cause__) from error


def cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot write '{path}' in the embedding cache: {error.strerror or error}; set "
        "ggeur.encoder.cache to a folder that can be written to and has room"
    )


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict) -> None:
    """Write tensors and a header of plain values, with a checksum over both."""
    digest = _digest(tensors, header)
    text = json.dumps({"version": VERSION, "sha256": digest, "header": header})
    write_in_cache(path, save(tensors, {_HEADER: text}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors and the header of a file.

    Raises
    ------
    FileNotFoundError
    DamagedError
        It was cut short, changed since, or written by another version.
    """
    # Not mapped into memory: a file that changes later must not change the tensors.
    try:
        data = path.read_bytes()
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        written = json.loads(metadata[_HEADER])
        version, digest, header = (written[k] for k in ("version", "sha256", "header"))
    except FileNotFoundError:
        raise
    # RuntimeError: torch's view of a file cut short.
    except (
        SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OSError
    ) as error:  # fmt: skip
        raise DamagedError(f"it cannot be read ({type(error).__name__})") from error
    if version != VERSION:
        raise DamagedError(f"it is of version {version} and not {VERSION}")
    if _digest(tensors, header) != digest:
        raise DamagedError("its checksum is wrong")
    return tensors, header


def _digest(tensors: dict[str, Tensor], header: dict) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
