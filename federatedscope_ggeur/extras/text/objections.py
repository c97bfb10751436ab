"""What cannot go with the settings of text features."""

from __future__ import annotations

from typing import Any

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.exchanges.closed_form.keys import ClosedFormKeys
from federatedscope_ggeur.models import CLOSED_FORMS, OTHER_MODELS
from federatedscope_ggeur.settings import Objection, Objections

from .keys import ENSEMBLE, OWN, TEXT_MODELS, TextKeys


def objections(run: Any) -> Objections:
    """Yield settings of text that have no effect in this run, or cannot go with it."""
    head, part = run.of(ClosedFormKeys), TEXT_MODELS.get(run.of(TextKeys).model)
    if part is not None:
        yield from part.objections(run)
    if head.init == "closed_form":
        why = "because training goes on from one head, not from two"
        yield Objection("init", {"text.ensemble": [0]}, why)
    if head.keep != "trained":
        why = "because the head that is kept may be one that is not trained"
        yield Objection("keep", {"text.interpolate": [1]}, why)
    in_training = {"text.regulariser": [0], "text.interpolate": [1]}
    if not run.trains:
        why = (
            "because this setting is for training, and the closed form is the whole run"
        )
        yield Objection("closed_form", in_training, why)
    for other in (*others(), "mlp_hidden_dim"):
        if run.chosen[other]:
            yield Objection(other, in_training, "because it needs a linear head")
    for part in (run.method, run.augmentation):
        if part is not None and (part.personal or not part.federated):
            why = "which gives every client its own head"
            yield Objection(part.chosen_by, {OWN: [""], **in_training}, why)
    used = {"text.prior": [0], ENSEMBLE: [0]}
    if run.personal:
        yield Objection("personal.head", used, "which does not use text")
    if head.keep == "average":
        why = "which averages two heads that are made without text"
        yield Objection("keep", {ENSEMBLE: [0], OWN: [""]}, why)
    for field in ("prior", "ensemble"):
        known = CLOSED_FORMS.present()
        takes = [n for n, f in known.items() if getattr(f, f"takes_{field}")]
        if head.closed_form not in takes:
            why = f"which ignores it; only {' and '.join(takes)} use it"
            yield Objection("closed_form", {f"text.{field}": [0]}, why)
    yield from _of_privacy(run)


def _of_privacy(run: Any) -> Objections:
    if run.chosen.get("book"):
        used = {"text.prior": [0], ENSEMBLE: [0]}
        yield Objection("book", used, "since its head depends on the totals only")
    if not run.noisy:
        return
    why = "since rounds send exact updates, which reveal rows and which epsilon ignores"
    yield Objection("dp.epsilon", {OWN: ["none", ""]}, why)
    yield Objection(
        "dp.epsilon", {ENSEMBLE: [0]}, "since the ensemble ignores the noise"
    )
    if run.chosen["dp.prior"] and run.of(TextKeys).prior:
        yield "dp.prior", f"cannot go with {setting('text.prior')}; set one of the two"


def others() -> list[str]:
    """The settings that choose models without text in place of a head."""
    return [name for name in OTHER_MODELS if name not in (OWN, ENSEMBLE)]
