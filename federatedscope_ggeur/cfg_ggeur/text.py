"""What `ggeur.text.*` asks for, and what cannot go with it."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.models import CLOSED_FORMS, TEXT_MODELS
from federatedscope_ggeur.models.text import TEXT_USE_KEYS

#: The closed forms whose class means a prior moves, and that an ensemble is made with.
_WITH_PRIOR, _WITH_ENSEMBLE = ("lda", "mixture", "auto"), ("lda", "auto")


def uses_text(ggeur) -> bool:
    """Whether something in `cfg.ggeur` is made of text features; else none are had."""
    form = CLOSED_FORMS.get(ggeur.closed_form)
    if form is not None and form.needs_text:
        return True
    return any(ggeur.text[name] != default for name, default in _uses())


def _uses() -> Iterator[tuple[str, object]]:
    for key in TEXT_USE_KEYS:
        yield key.name.partition(".")[2], key.default


def trains(ggeur) -> bool:
    """Whether there are rounds of training."""
    return ggeur.closed_form == "none" or ggeur.init == "closed_form"


def text_problems(cfg) -> Iterator[str]:
    """Contradictions of ``ggeur.text`` with other settings, each ``"<key>:
    <problem>"``."""
    ggeur = cfg.ggeur
    if not ggeur.use:
        return
    kind, chosen = ggeur.closed_form, ggeur.text
    if chosen.prior and kind not in _WITH_PRIOR:
        yield (
            f"ggeur.text.prior: is for ggeur.closed_form: {', '.join(_WITH_PRIOR)}, "
            f"got {kind}; leave it out"
        )
    if chosen.ensemble and kind not in _WITH_ENSEMBLE:
        yield (
            f"ggeur.text.ensemble: is for ggeur.closed_form: "
            f"{', '.join(_WITH_ENSEMBLE)}, got {kind}; leave it out"
        )
    if chosen.ensemble and ggeur.init == "closed_form":
        yield (
            "ggeur.text.ensemble: must be 0 with ggeur.init: closed_form, because "
            "training goes on from one head, not from two"
        )
    in_training = [
        name
        for name, unset in (("regulariser", 0), ("interpolate", 1))
        if chosen[name] != unset
    ]
    for name in in_training:
        yield from _training_problems(ggeur, f"ggeur.text.{name}")
    yield from _model_problems(ggeur)
    if chosen.interpolate != 1 and ggeur.keep == "best":
        yield "ggeur.text.interpolate: must be 1 with ggeur.keep: best"


def _model_problems(ggeur) -> Iterator[str]:
    part = TEXT_MODELS.get(ggeur.text.model)
    if part is None:
        return
    chosen = f"with ggeur.text.model: {part.name}"
    must = (
        ("closed_form", ggeur.closed_form, "none"),
        ("calibrate", ggeur.calibrate, "none"),
        ("network.name", ggeur.network.name, ""),
        ("mlp_hidden_dim", ggeur.mlp_hidden_dim, 0),
        ("text.regulariser", ggeur.text.regulariser, 0),
        ("text.interpolate", ggeur.text.interpolate, 1),
    )
    for name, value, only in must:
        if value != only:
            yield f"ggeur.{name}: must be {only!r} {chosen}, got {value!r}"
    if ggeur.space == "whitened":
        yield f"ggeur.space: must not be whitened {chosen}, which has no linear layer"
    if part.own_classes and ggeur.augmentation == "ggeur" and list(ggeur.steps):
        yield (
            f"ggeur.steps: must be [] {chosen}, in which a client trains on the "
            "classes that it holds"
        )
    base = METHODS.get(ggeur.base_method)
    if base is not None and (base.personal or not base.federated):
        yield (
            f"ggeur.base_method: must not be {base.name} {chosen}; take one with one "
            "model for all, such as fedavg"
        )


def _training_problems(ggeur, key: str) -> Iterator[str]:
    base = METHODS.get(ggeur.base_method)
    if not trains(ggeur):
        yield f"{key}: is for training, and ggeur.closed_form is the whole run"
    if ggeur.network.name or ggeur.mlp_hidden_dim:
        yield f"{key}: needs a linear head; leave it, or the network or hidden layer"
    if base is not None and (base.personal or not base.federated):
        yield (
            f"{key}: cannot go with ggeur.base_method: {base.name}, in which every "
            "client has a head of its own"
        )
