"""Weights files that a setting names: found, and read safely."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.data.encoders.base import EncoderSettings
from federatedscope_ggeur.errors import ConfigError

_KINDS = (".safetensors", ".pt", ".pth", ".bin")


def file_stamp(path: Path) -> str:
    """Changes when the file may have changed."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def places(settings: EncoderSettings) -> list[str]:
    """For `register_encoder`: a name of weights is no place, but a file's is."""
    try:
        named = local_file(settings.pretrained) is not None
    except ConfigError:
        named = True
    return ["pretrained"] * named


def local_file(pretrained: str) -> Path | None:
    """The existing file that a setting names; None if it names none.

    Raises
    ------
    ConfigError
        It names a file that does not exist.
    """
    path = Path(pretrained).expanduser()
    if path.is_file():
        return path
    if os.sep in pretrained or pretrained.endswith(_KINDS):  # no tag
        raise ConfigError(f"ggeur.encoder.pretrained: there is no file '{pretrained}'")
    return None


def is_script(path: Path) -> bool:
    """Whether a file is a TorchScript program with its weights, as OpenAI's are."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_script(path: Path) -> dict[str, Tensor]:
    """The weights in a TorchScript program; loading it is trusting it.

    Raises
    ------
    ConfigError
    """
    try:
        return dict(torch.jit.load(str(path), map_location="cpu").state_dict())
    except RuntimeError as error:
        raise ConfigError(f"cannot read the weights file '{path}': {error}") from error


def check_readable(path: Path) -> None:
    """Refuse a file that is no weights file or would have to be unpickled unsafely.

    The libraries read the file once more; some fall back to unsafe reading where the
    safe one fails, which it no longer can.

    Raises
    ------
    ConfigError
    """
    if path.suffix not in _KINDS:
        raise ConfigError(
            f"'{path}' is no weights file: its name must end in {', '.join(_KINDS)}"
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(str(path), "pt") as file:
                file.keys()
        else:
            torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"'{path}' holds more than tensors and is not read, because unpickling it "
            "could run any program. Save its state dict alone, best as .safetensors."
        ) from error
    except Exception as error:  # whatever torch makes of a file that is none of its own
        raise ConfigError(f"cannot read the weights file '{path}': {error}") from error
