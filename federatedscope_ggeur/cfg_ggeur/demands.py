"""From a config to the facts of its run."""

from __future__ import annotations

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.models import CLOSED_FORMS, ClosedForm, build_closed_form
from federatedscope_ggeur.models.text import ClassTexts


def demands_of(cfg) -> Demands:
    """The facts of the run of `cfg`, whose single keys are right."""
    ggeur = cfg.ggeur
    form = CLOSED_FORMS.get(ggeur.closed_form)
    trains = form is None or ggeur.init != "random"
    base = METHODS.get(ggeur.base_method)
    is_ggeur = ggeur.augmentation == "ggeur"
    # A network normalises pixels itself, and a text model takes embeddings as CLIP
    # gives them: for these ggeur.space is left at its default.
    has_space = trains and not ggeur.network.name and not ggeur.text.model
    return Demands(
        rounds=cfg.federate.total_round_num if trains else 0,
        federated=base is None or base.federated,
        steps=tuple(ggeur.steps) if trains and is_ggeur else (),
        space=ggeur.space if has_space else "raw",
        closed_form=form is not None,
        uses_statistics=form is not None and form.asks,
        is_open=_is_open(ggeur),
        keeps_best=keeps_best(ggeur),
        calibrates=ggeur.calibrate != "none",
        sums=ggeur.privacy.secure_sums != "none",
        plugins=tuple(ggeur.plugins),
    )


def closed_form_of(ggeur, text: ClassTexts | None = None) -> ClosedForm | None:
    """The one-shot head of ``ggeur.closed_form``, as a start where it is no more.

    Raises
    ------
    ConfigError
        Its settings are wrong.
    """
    if ggeur.closed_form == "none":
        return None
    form = build_closed_form(ggeur.closed_form, ggeur)
    form.compressed = ggeur.statistics == "compressed"
    if text is not None and (form.needs_text or text.prior or text.ensemble):
        form = form.knowing(text)
    is_left = ggeur.init == "random" or ggeur.keep == "best"
    return form if is_left else form.as_start()


def keeps_best(ggeur) -> bool:
    """Whether the run leaves the better of the one-shot head and the trained one."""
    starts = ggeur.closed_form != "none" and ggeur.init == "closed_form"
    return starts and ggeur.keep == "best"


def _is_open(ggeur) -> bool:
    """Whether clients' rows choose the head; no, where its settings are wrong."""
    try:
        form = closed_form_of(ggeur)
    except ConfigError:
        return False
    return form is not None and form.is_open
