"""Whether CLIP weights were trained with QuickGELU, and which model goes with them.

The two activations differ little. With the wrong one, features look plausible but are
worse, and nothing else shows it.
"""

from __future__ import annotations

import json
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError

SUFFIX = "-quickgelu"


def plain_name(model: str) -> str:
    """The model's name without the suffix that says QuickGELU."""
    return model[: -len(SUFFIX)] if model.endswith(SUFFIX) else model


def needs_quick_gelu(
    model: str, in_config: bool, trained: bool | None, setting: str, where: str
) -> bool:
    """Whether the model must be built with QuickGELU.

    Parameters
    ----------
    model : str
        open_clip's name of the model.
    in_config : bool
        Whether open_clip's configuration of that name has QuickGELU.
    trained : bool or None
        Whether the weights were trained with it; None if unknown.
    setting : str
        ``ggeur.encoder.quick_gelu``: auto, with or without.
    where : str
        The weights, for messages.

    Raises
    ------
    ConfigError
        Model, weights and setting contradict each other, or it is unknown how the
        weights were trained.
    """
    said = {"with": True, "without": False}.get(setting)
    if None not in (said, trained) and said != trained:
        raise ConfigError(
            f"ggeur.encoder.quick_gelu: is '{setting}', but {where} were trained "
            f"{'with' if trained else 'without'} QuickGELU; leave it at auto"
        )
    wanted = trained if said is None else said
    if wanted is None:
        if in_config:
            return True
        raise ConfigError(
            f"nothing says whether {where} were trained with QuickGELU, and the wrong "
            "activation spoils the features unnoticed; set ggeur.encoder.quick_gelu to "
            "'with' (all weights of OpenAI, DFN and MetaCLIP) or 'without'"
        )
    if in_config and not wanted:
        raise ConfigError(
            f"ggeur.encoder.model: '{model}' has QuickGELU, but {where} were trained "
            f"without it; take the model {plain_name(model)}"
        )
    if wanted and not in_config and said is None:
        raise ConfigError(
            f"ggeur.encoder.model: '{model}' has no QuickGELU, but {where} were "
            f"trained with it; take the model {model}{SUFFIX}"
        )
    return wanted


def trained_with(path: Path, published: bool | None) -> bool | None:
    """Whether a local weights file was trained with QuickGELU; None if unknown.

    Parameters
    ----------
    path : Path
        The file. ``open_clip_config.json`` beside it says so; downloads from the
        Hugging Face hub have one. So does "quickgelu" in its name.
    published : bool or None
        What is known of the published file, if it is one.
    """
    config = beside(path).get("model_cfg")
    if isinstance(config, dict):
        return bool(config.get("quick_gelu", False))
    if published is not None:
        return published
    return True if "quickgelu" in path.name.lower() else None


def beside(path: Path) -> dict:
    """The content of ``open_clip_config.json`` in the file's folder; {} if none."""
    try:
        found = json.loads(path.with_name("open_clip_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
