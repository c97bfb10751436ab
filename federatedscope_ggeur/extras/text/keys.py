"""The settings of text features and of what uses them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from federatedscope_ggeur.settings import (
    Key,
    Registry,
    Section,
    fraction,
    key,
    keys_of_parts,
    not_negative,
    whole,
)

from .templates import LISTS

#: The setting that chooses a text model, and the text models by name.
OWN = "text.model"
TEXT_MODELS: Registry[Any] = Registry("text model", OWN)
TEXT_MODELS.expect(
    {
        "fedclip": f"{__package__}.adapter",
        "fedtpg": f"{__package__}.generator",
        "promptfl": f"{__package__}.prompts",
    }
)
#: The setting for the ensemble, and the closed form of text alone.
ENSEMBLE, ZEROSHOT = "text.ensemble", "zeroshot"

#: The most templates, and the most characters of a template.
_MOST, _LONGEST = 1000, 300


def _templates(value: object) -> str:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MOST:
        return f"must be a list of 1 to {_MOST} templates or names of lists"
    for text in value:
        if not isinstance(text, str) or len(text) > _LONGEST:
            return f"must hold texts of at most {_LONGEST} characters"
        if text not in LISTS and text.count("{}") != 1:
            return (
                f"'{text}' is neither one of {', '.join(LISTS)} nor a template with "
                "one {} for a class's name"
            )
    return ""


def _model(value: object) -> str:
    """The rule of `text.model`: "" or the name of a registered text model."""
    if isinstance(value, str) and (not value or value in TEXT_MODELS):
        return ""
    return f"must be '' or one of {', '.join(TEXT_MODELS)}; got {value!r}"


class TextKeys(Section):
    """The settings of text features."""

    PREFIX = "text."

    templates: tuple[str, ...] = key(
        ("one",),
        "Prompts. The text features of a class are the mean over them. Each is a "
        "template with {} for the name of the class, or one (a photo of a {}.), or "
        "imagenet80, the 80 of OpenAI.",
        _templates,
        shared=True,
    )
    model: str = key(
        "",
        "A model with text features as its last layer, trained in place of a head: "
        "fedclip, promptfl or fedtpg; '': a head.",
        _model,
        shared=True,
    )
    prior: float = key(
        0.0,
        "lda, mixture and auto: the text features of a class count like this many "
        "rows in its mean; 0: not at all. 4 is a good value.",
        not_negative,
        shared=True,
    )
    ensemble: float = key(
        0.0,
        "lda and auto: weight of the closed form's logits beside the zero-shot ones; "
        "0: no ensemble; 1: as published.",
        not_negative,
        shared=True,
    )
    regulariser: float = key(
        0.0,
        "Training of a linear head: weight of |W - W_zs|^2, which pulls it to the "
        "zero-shot head; 0: no pull.",
        not_negative,
        shared=True,
    )
    interpolate: float = key(
        1.0,
        "Share t of the trained head in the saved one, (1 - t) W_zs + t W, from 0 to "
        "1; 1: only the trained head.",
        fraction(),
        shared=True,
    )


#: The settings by which a run uses text features.
TEXT_USE_KEYS = TextKeys.declared()[1:]

#: The settings of text models.
OF_MODELS: dict[str, tuple[Key, ...]] = {
    "promptfl": (
        Key(
            "n_ctx",
            16,
            "Number of trained vectors before the name of a class.",
            whole(1, maximum=64),
        ),
    ),
    "fedtpg": (
        Key(
            "n_ctx",
            4,
            "Number of vectors that the network makes.",
            whole(1, maximum=64),
        ),
    ),
}

KEYS = (*TextKeys.declared(), *keys_of_parts(OF_MODELS))


def uses_text(read: Callable[[str], Any]) -> bool:
    """Whether a run uses text features; `read` returns a setting by its name."""
    if read("closed_form") == ZEROSHOT:
        return True
    return any(read(one.name) != one.default for one in TEXT_USE_KEYS)
