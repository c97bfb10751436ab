"""Makes a predictor from class names alone, for ``predict --classes``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    build_encoder,
    pick_device,
)
from federatedscope_ggeur.data.text import TEXT_KEYS
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import MeanStatistics
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.text import ClassTexts
from federatedscope_ggeur.predictor.predictor import Predictor, check_device


def read_names(path: str) -> tuple[str, ...]:
    """Read class names from a file, one on each line; empty lines are skipped.

    Raises
    ------
    ConfigError
        The file cannot be read, names no class, or names a class twice.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--classes: cannot read '{path}': {error}") from error
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        problem = f"names '{twice[0]}' twice" if twice else "names no class"
        raise ConfigError(f"--classes: '{path}' {problem}; write one on each line")
    return names


def zero_shot_predictor(
    names: Sequence[str],
    templates: Sequence[str],
    settings: EncoderSettings,
    device: str = "",
    cache: str = EncodingSettings.cache,
) -> Predictor:
    """Make a predictor of the classes `names` from the encoder's text side.

    Raises
    ------
    ConfigError
        A template or device is wrong, or the weights cannot be obtained.
    """
    from federatedscope_ggeur.data.text.load import load_text

    problem = TEXT_KEYS[0].rule(list(templates))
    if problem:
        raise ConfigError(f"--template: {problem}")
    check_device(device)
    encoding = EncodingSettings(settings, device=device or "auto", cache=cache)
    encoder = build_encoder(settings, pick_device(encoding.device))
    found = load_text(names, templates, encoding, encoder.identity).found
    texts = ClassTexts(found.features, found.scale, found.key)
    nothing = MeanStatistics.empty(len(names), encoder.dim)
    head = CLOSED_FORMS["zeroshot"]().knowing(texts).solve(nothing).model
    return Predictor.of(encoder, head, names)
