"""The keys `ggeur.text.*` that say how text features are used."""

from __future__ import annotations

from typing import Any

from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    fraction,
    not_negative,
)

from ..other import OTHER_MODELS
from .base import TEXT_MODELS


def _model(value: object) -> str:
    """The rule of `text.model`: "" or the name of a registered text model."""
    if isinstance(value, str) and (not value or value in TEXT_MODELS):
        return ""
    return f"must be '' or one of {', '.join(TEXT_MODELS)}; got {value!r}"


TEXT_USE_KEYS = (
    Key(
        "text.model",
        "",
        "A model with text features as its last layer, trained in place of a head: "
        "fedclip, promptfl or fedtpg; '': a head.",
        _model,
        shared=True,
    ),
    Key(
        "text.prior",
        0.0,
        "lda, mixture and auto: the text features of a class count like this many "
        "rows in its mean; 0: not at all. 4 is a good value.",
        not_negative,
        shared=True,
    ),
    Key(
        "text.ensemble",
        0.0,
        "lda and auto: weight of the closed form's logits beside the zero-shot ones; "
        "0: no ensemble; 1: as published.",
        not_negative,
        shared=True,
    ),
    Key(
        "text.regulariser",
        0.0,
        "Training of a linear head: weight of |W - W_zs|^2, which pulls it to the "
        "zero-shot head; 0: no pull.",
        not_negative,
        shared=True,
    ),
    Key(
        "text.interpolate",
        1.0,
        "Share t of the trained head in the saved one, (1 - t) W_zs + t W, from 0 to "
        "1; 1: only the trained head.",
        fraction(),
        shared=True,
    ),
)


def objections(run: Any) -> Objections:
    """Yield keys of text that have no effect in this run."""
    if run["init"] == "closed_form":
        why = "because training goes on from one head, not from two"
        yield Objection("init", {"text.ensemble": [0]}, why)
    if run["keep"] != "trained":
        why = "because the head that is kept may be one that is not trained"
        yield Objection("keep", {"text.interpolate": [1]}, why)
    in_training = {"text.regulariser": [0], "text.interpolate": [1]}
    if not run.trains:
        why = (
            "because this setting is for training, and the closed form is the whole run"
        )
        yield Objection("closed_form", in_training, why)
    for other in (*OTHER_MODELS, "mlp_hidden_dim"):
        if run[other]:
            yield Objection(other, in_training, "because it needs a linear head")
