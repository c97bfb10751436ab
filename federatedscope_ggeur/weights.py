"""Weights files, read safely, and the libraries that make models for weights."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError

#: The best weights that a library publishes of a model.
DEFAULT = "default"
_KINDS = (".safetensors", ".pt", ".pth", ".bin")


def local_file(name: str, key: str) -> Path | None:
    """The file that the setting `key` names; None if it names none.

    Raises
    ------
    ConfigError
        It names a file that does not exist.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if os.sep in name or name.endswith(_KINDS):  # no tag
        raise ConfigError(f"{key}: there is no file '{name}'")
    return None


def read_weights(path: Path, key: str) -> Mapping[str, Tensor]:
    """The state dict in a file that the setting `key` names; no code in it is run.

    Raises
    ------
    ConfigError
        It is no weights file, or would have to be unpickled unsafely.
    """
    if path.suffix not in _KINDS:
        raise ConfigError(
            f"{key}: '{path}' is no weights file: its name must end in "
            f"{', '.join(_KINDS)}"
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(str(path))
        state = torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{key}: '{path}' holds more than tensors. It is not read, because "
            "unpickling it could run any program. Save its state dict alone, best as "
            ".safetensors."
        ) from error
    except Exception as error:  # whatever torch makes of a file that is none of its own
        raise ConfigError(
            f"{key}: cannot read the weights file '{path}', which must hold a state "
            f"dict: {error}"
        ) from error
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"{key}: '{path}' holds a {type(state).__name__}, not a state dict"
        )
    return state


def load_library(name: str, package: str, key: str, needed_by: str = "") -> ModuleType:
    """The library of that name, which is on PyPI as `package`.

    Raises
    ------
    ConfigError
        It is not installed, or was built for another torch; names the setting `key`.
    """
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"{key}: {needed_by or name} needs the package {package}: pip install "
            f"{package} ({error})"
        ) from error


def load_timm(model: str, key: str, needed_by: str = "") -> ModuleType:
    """timm, which has a model of that name.

    Raises
    ------
    ConfigError
        It is not installed, or has no such model.
    """
    library = load_library("timm", "timm", key, needed_by)
    if not library.is_model(model):
        like = library.list_models(f"*{model[:6]}*")[:8] or ["resnet50"]
        raise ConfigError(
            f"{key}: timm has no model '{model}'; there are e.g. {', '.join(like)}"
        )
    return library


def timm_config(library: ModuleType, model: str, tag: str, key: str):
    """timm's description of the weights that it publishes of a model under a tag.

    Raises
    ------
    ConfigError
        There are none.
    """
    plain = model.partition(".")[0]
    try:
        found = library.get_pretrained_cfg(
            model if tag == DEFAULT else f"{plain}.{tag}"
        )
    except RuntimeError:  # of that tag there are none
        found = None
    if found is None or not (found.hf_hub_id or found.url):
        tags = library.list_pretrained(f"{plain}.*")
        raise ConfigError(
            f"{key}: timm has no weights '{tag}' of {model}; there are "
            f"{', '.join(tags) or 'none'}; or name a file"
        )
    return found


def parameter_bytes(build: Callable[[], nn.Module]) -> int:
    """Bytes of a model's parameters in float32, found without its weights."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                model = build()
        except Exception:  # torch < 2 has no such context, and some models need values
            model = build()
    return 4 * sum(p.numel() for p in model.parameters())
