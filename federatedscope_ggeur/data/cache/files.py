"""Files of the embedding cache. Each is whole or absent, and each has a checksum."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import safetensors_header, write_atomically

VERSION = 1
_HEADER = "ggeur_embeddings"


class DamagedError(Exception):
    """A cache file was changed after it was written, or is not the expected file."""


def write_in_cache(path: Path, data: bytes) -> None:
    """Write `data` to `path` in the cache, whole or not at all. Make missing folders.

    Raises
    ------
    ConfigError
        The file cannot be written. The error says which setting to change.
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
        "ggeur.encoder.cache to a writable folder with enough room"
    )


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict) -> None:
    """Write tensors and a header of plain values to a file, with one checksum."""
    digest = _digest(tensors, header)
    text = json.dumps({"version": VERSION, "sha256": digest, "header": header})
    write_in_cache(path, save(tensors, {_HEADER: text}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Read the tensors and the header of a file.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    DamagedError
        The file was cut short, changed, or written by another version.
    """
    # Not mapped into memory: a later change of the file must not change the tensors.
    try:
        data = path.read_bytes()
        tensors = load(data)
        written = json.loads(safetensors_header(data)["__metadata__"][_HEADER])
        version, digest, header = (written[k] for k in ("version", "sha256", "header"))
    except FileNotFoundError:
        raise
    # torch raises RuntimeError for a file that was cut short.
    except (
        SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OSError
    ) as error:  # fmt: skip
        raise DamagedError(
            f"the file cannot be read: {type(error).__name__}"
        ) from error
    if version != VERSION:
        raise DamagedError(f"the file has version {version}, not {VERSION}")
    if _digest(tensors, header) != digest:
        raise DamagedError("the checksum of the file is wrong")
    return tensors, header


def _digest(tensors: dict[str, Tensor], header: dict) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
