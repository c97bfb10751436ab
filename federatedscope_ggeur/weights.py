"""Read weights files safely, and load the libraries that make models for them."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import check_regular

#: The tag that means the best weights that a library publishes for a model.
DEFAULT = "default"
_KINDS = (".safetensors", ".pt", ".pth", ".bin")


def local_file(name: str, key: str) -> Path | None:
    """The path of the file called `name`; None if `name` is a tag and no file.

    Raises
    ------
    ConfigError
        `name` is a path, but there is no such file. The message names the setting
        `key`.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if os.sep in name or name.endswith(_KINDS):  # no tag
        raise ConfigError(f"{key}: there is no file '{name}'")
    return None


def read_weights(path: Path, key: str) -> Mapping[str, Tensor]:
    """The state dict in a weights file. No code in the file is run.

    Raises
    ------
    ConfigError
        The file is no weights file, or could only be unpickled unsafely. The message
        names the setting `key`.
    """
    if path.suffix not in _KINDS:
        raise ConfigError(
            f"{key}: the name of a weights file must end in {', '.join(_KINDS)}, got "
            f"'{path}'"
        )
    try:
        check_regular(path)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(str(path))
        if not _is_of_torch(path):
            raise ValueError("torch.save did not write it, or it is not whole")
        state = torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{key}: '{path}' holds more than tensors. It is not read, because "
            "unpickling such a file could run any program. Save the state dict alone, "
            "best as .safetensors."
        ) from error
    except Exception as error:  # torch has many errors for a file that it cannot read
        raise ConfigError(
            f"{key}: cannot read the weights file '{path}': {error}. It must hold a "
            "state dict"
        ) from error
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"{key}: '{path}' holds a {type(state).__name__}. Save a state dict instead"
        )
    return state


def _is_of_torch(path: Path) -> bool:
    """Whether a file is a zip, as torch.save writes it, or a pickle of old releases."""
    with open(path, "rb") as file:
        if zipfile.is_zipfile(file):
            return True
        file.seek(0)
        return file.read(1) == b"\x80"


def load_library(name: str, package: str, key: str, needed_by: str = "") -> ModuleType:
    """Import the library `name`, which PyPI calls `package`.

    Raises
    ------
    ConfigError
        The library is not installed, or was built for another torch. The message names
        the setting `key`.
    """
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"{key}: {needed_by or name} needs the package {package}: pip install "
            f"{package} ({error})"
        ) from error


def load_timm(model: str, key: str, needed_by: str = "") -> ModuleType:
    """Import timm, and check that timm knows `model`.

    Raises
    ------
    ConfigError
        timm is not installed, or has no such model.
    """
    library = load_library("timm", "timm", key, needed_by)
    if not library.is_model(model):
        like = library.list_models(f"*{model[:6]}*")[:8] or ["resnet50"]
        raise ConfigError(
            f"{key}: timm has no model '{model}'; it has e.g. {', '.join(like)}"
        )
    return library


def timm_config(library: ModuleType, model: str, tag: str, key: str):
    """timm's description of the weights that it publishes for a model under a tag.

    Raises
    ------
    ConfigError
        timm has no such weights.
    """
    plain = model.partition(".")[0]
    try:
        config = library.get_pretrained_cfg(
            model if tag == DEFAULT else f"{plain}.{tag}"
        )
    except RuntimeError:  # timm has no weights with that tag
        config = None
    if config is None or not (config.hf_hub_id or config.url):
        tags = library.list_pretrained(f"{plain}.*")
        raise ConfigError(
            f"{key}: timm has no weights '{tag}' of {model}. Name a file, or one of "
            f"timm's tags: {', '.join(tags) or 'none'}"
        )
    return config


def parameter_bytes(build: Callable[[], nn.Module]) -> int:
    """Size of a model's parameters in bytes, as float32. No weights are loaded."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                model = build()
        except Exception:  # torch < 2 has no such context, and some models need values
            model = build()
    return 4 * sum(p.numel() for p in model.parameters())
