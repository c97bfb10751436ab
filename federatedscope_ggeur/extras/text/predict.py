"""``ggeur predict --classes``: predict classes by their names alone, without a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    build_encoder,
    pick_device,
)
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.predictor.predictor import Predictor, check_device

from .classes import ClassTexts
from .keys import TEMPLATES


def add_way(group: Any) -> None:
    """Add ``--classes``, which stands in place of ``--run``."""
    group.add_argument(
        "--classes",
        metavar="FILE",
        help="a file of class names, one on each line, instead of a run: zero-shot "
        "classification by CLIP's text side",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``--classes``."""
    parser.add_argument(
        "--model",
        default="",
        help="with --classes: open_clip's name of the model (default: ViT-B-16)",
    )
    parser.add_argument(
        "--quick-gelu",
        default="auto",
        choices=("auto", "with", "without"),
        help="with --classes: whether the weights were trained with QuickGELU",
    )
    parser.add_argument(
        "--template",
        action="append",
        default=[],
        metavar="TEXT",
        help="with --classes: a prompt with {} in place of the name, or a list of "
        "prompts, one or imagenet80; may be repeated (default: one)",
    )
    parser.add_argument(
        "--cache",
        default="embeddings_cache",
        metavar="FOLDER",
        help="with --classes: the folder in which text features are kept",
    )


def check(options: argparse.Namespace) -> None:
    """Refuse options that go with ``--classes`` alone.

    Raises
    ------
    ConfigError
        One of them is given.
    """
    ignored = [f"--{n}" for n in ("model", "template") if getattr(options, n)]
    if ignored:
        raise ConfigError(
            f"{', '.join(ignored)}: can only be used with --classes, not with --run"
        )


def predictor(options: argparse.Namespace) -> Predictor | None:
    """Make the predictor that ``--classes`` asks for; None without this option.

    Raises
    ------
    ConfigError
        The errors of `zero_shot_predictor`, or ``--clients`` is given.
    """
    if options.classes is None:
        return None
    if options.clients is not None:
        raise ConfigError("--clients can only be used with --run, not with --classes")
    return zero_shot_predictor(
        read_names(options.classes),
        options.template or ["one"],
        EncoderSettings(
            "open_clip",
            options.model,
            options.pretrained,
            normalize=True,
            quick_gelu=options.quick_gelu,
        ),
        options.device,
        options.cache,
    )


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
    # Imported here, since every use of the command reads the options.
    from .load import load_text
    from .zeroshot import ZeroShot

    problem = TEMPLATES.rule(list(templates))
    if problem:
        raise ConfigError(f"--template: {problem}")
    check_device(device)
    encoding = EncodingSettings(settings, device=device or "auto", cache=cache)
    encoder = build_encoder(settings, pick_device(encoding.device))
    found = load_text(names, templates, encoding, encoder.identity).found
    texts = ClassTexts(found.features, found.scale, found.key)
    nothing = Statistics.empty(len(names), encoder.dim, "means")
    head = ZeroShot().knowing(texts).solve(nothing).model
    return Predictor.of(encoder, head, names)
