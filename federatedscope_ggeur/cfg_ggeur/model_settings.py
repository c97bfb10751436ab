"""The head that a checked config asks for, and the statistics that it takes."""

from __future__ import annotations

from federatedscope_ggeur.federation.course.requests import (
    CALIBRATE,
    KINDS,
    STATISTICS,
    RequestKind,
)
from federatedscope_ggeur.federation.messages import StatisticsForm
from federatedscope_ggeur.models import ClosedForm, ModelSettings, build_closed_form


def model_settings(cfg) -> ModelSettings:
    """The model of ``ggeur.mlp_hidden_dim``, or of ``ggeur.closed_form``."""
    hidden, form = int(cfg.ggeur.mlp_hidden_dim), cfg.ggeur.closed_form
    return ModelSettings(hidden, cfg.model.dropout, form)


def statistics_form(ggeur) -> StatisticsForm:
    """How statistics travel: exactly if a head in closed form inverts them."""
    exact = ggeur.closed_form != "none"
    return StatisticsForm(summed=ggeur.statistics == "summed", exact=exact)


def augmentation_steps(ggeur) -> tuple[int, ...]:
    """The steps of GGEUR in `cfg.ggeur`: none where something else stands for it."""
    used = ggeur.augmentation == "ggeur" and not only_closed_form(ggeur)
    return tuple(ggeur.steps) if used else ()


def answered_requests(ggeur) -> frozenset[RequestKind]:
    """What a client of these settings answers."""
    answered = {kind for kind in KINDS if kind.always}
    if augmentation_steps(ggeur) or ggeur.closed_form != "none":
        answered.add(STATISTICS)
    if ggeur.calibrate != "none":
        answered.add(CALIBRATE)
    return frozenset(answered)


def asks_for_statistics(ggeur) -> bool:
    """Whether clients are asked for class statistics at all."""
    return bool(answered_requests(ggeur) & {STATISTICS, CALIBRATE})


def only_closed_form(ggeur) -> bool:
    """Whether the run ends with round 0, at a head in closed form."""
    return ggeur.closed_form != "none" and ggeur.init == "random"


def closed_form_settings(ggeur) -> ClosedForm | None:
    """The closed form that `cfg.ggeur` asks for, if any."""
    kind = ggeur.closed_form
    return None if kind == "none" else build_closed_form(kind, ggeur)
