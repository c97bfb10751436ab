"""Find out whether CLIP weights were trained with QuickGELU, and which model fits them.

The two activations differ little. With the wrong one, features look plausible but are
worse, and nothing else shows the mistake.
"""

from __future__ import annotations

import json
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError

SUFFIX = "-quickgelu"


def plain_name(model: str) -> str:
    """The model's name without the suffix "-quickgelu"."""
    return model[: -len(SUFFIX)] if model.endswith(SUFFIX) else model


def needs_quick_gelu(
    model: str, in_config: bool, trained: bool | None, setting: str, where: str
) -> bool:
    """Whether a model must be built with QuickGELU.

    Parameters
    ----------
    model : str
        open_clip's name of the model.
    in_config : bool
        Whether open_clip's configuration of that name has QuickGELU.
    trained : bool or None
        Whether the weights were trained with QuickGELU; None if unknown.
    setting : str
        ``ggeur.encoder.quick_gelu``: auto, with or without.
    where : str
        A description of the weights, for messages.

    Raises
    ------
    ConfigError
        Model, weights and setting contradict each other. Or it is unknown how the
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
            f"it is unknown whether {where} were trained with QuickGELU, and the wrong "
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
        The file. An ``open_clip_config.json`` beside the file decides; downloads from
        the Hugging Face hub have one. Otherwise "quickgelu" in the file's name means
        yes.
    published : bool or None
        The answer for a published file; None for any other file.
    """
    config = beside(path).get("model_cfg")
    if isinstance(config, dict):
        return bool(config.get("quick_gelu", False))
    if published is not None:
        return published
    return True if "quickgelu" in path.name.lower() else None


def beside(path: Path) -> dict:
    """The content of ``open_clip_config.json`` beside a file; {} if there is none."""
    try:
        found = json.loads(path.with_name("open_clip_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
