"""Find weights files that a setting names, and read them safely."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur import weights
from federatedscope_ggeur.errors import ConfigError

from .base import EncoderSettings

KEY = "ggeur.encoder.pretrained"
#: What an error about missing weights offers beside a file fetched by hand.
WITHOUT = ". Or try it without weights: ggeur.encoder.name hog"


def file_stamp(path: Path) -> str:
    """A text that changes if the file may have changed: path, size and time."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def places(settings: EncoderSettings) -> list[str]:
    """The settings that name files, for `register_encoder`.

    That is ["pretrained"], or [] if the setting is a tag of weights.
    """
    try:
        named = local_file(settings.pretrained) is not None
    except ConfigError:
        named = True
    return ["pretrained"] * named


def local_file(pretrained: str) -> Path | None:
    """The file that ``ggeur.encoder.pretrained`` names, see `weights.local_file`."""
    return weights.local_file(pretrained, KEY)


def check_readable(path: Path) -> None:
    """Refuse a file that is no weights file, or that could only be unpickled unsafely.

    The libraries read the file again after this check. Some libraries fall back to
    unsafe reading if safe reading fails. A file that passes this check can be read
    safely.

    Raises
    ------
    ConfigError
        The file cannot be read safely.
    """
    weights.read_weights(path, KEY)


def is_script(path: Path) -> bool:
    """Whether a file is a TorchScript program with weights, as OpenAI's files are."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_script(path: Path) -> dict[str, Tensor]:
    """Read the weights in a TorchScript program. Only read programs that you trust.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    try:
        return dict(torch.jit.load(str(path), map_location="cpu").state_dict())
    except RuntimeError as error:
        raise ConfigError(
            f"cannot read the weights file '{path}': {error}. Fetch the file again"
        ) from error
