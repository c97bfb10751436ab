"""Weights files that a setting names: found, and read safely."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur import weights
from federatedscope_ggeur.data.encoders.base import EncoderSettings
from federatedscope_ggeur.errors import ConfigError

KEY = "ggeur.encoder.pretrained"


def file_stamp(path: Path) -> str:
    """A text that changes if the file may have changed."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def places(settings: EncoderSettings) -> list[str]:
    """The settings that name files, for `register_encoder`: a tag of weights does
    not."""
    try:
        named = local_file(settings.pretrained) is not None
    except ConfigError:
        named = True
    return ["pretrained"] * named


def local_file(pretrained: str) -> Path | None:
    """The file that ``ggeur.encoder.pretrained`` names, see `weights.local_file`."""
    return weights.local_file(pretrained, KEY)


def check_readable(path: Path) -> None:
    """Refuse a file that is no weights file or would have to be unpickled unsafely.

    The libraries read the file once more. Some fall back to unsafe reading where the
    safe one fails, which it no longer can.

    Raises
    ------
    ConfigError
    """
    weights.read_weights(path, KEY)


def is_script(path: Path) -> bool:
    """Whether a file is a TorchScript program with weights, like OpenAI's files."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_script(path: Path) -> dict[str, Tensor]:
    """The weights in a TorchScript program. Load only programs that you trust.

    Raises
    ------
    ConfigError
    """
    try:
        return dict(torch.jit.load(str(path), map_location="cpu").state_dict())
    except RuntimeError as error:
        raise ConfigError(f"cannot read the weights file '{path}': {error}") from error
