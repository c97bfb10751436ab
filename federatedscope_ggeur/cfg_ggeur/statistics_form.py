"""What of the class statistics travels, from what is needed of them."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.federation.messages import StatisticsForm
from federatedscope_ggeur.geometry import Compression
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.models import CLOSED_FORMS, NEEDS
from federatedscope_ggeur.settings import NOT_SET

#: What statistics hold at most, in the words of the closed forms.
_HOLDS = {
    "class": "class",
    "summed": "pooled",
    "compressed": "pooled",
    "means": "means",
}
_MISSING = {
    "class": "for which the covariance of each class is needed",
    "pooled": "for which the scatter within classes is needed",
}


def statistics_form(ggeur) -> StatisticsForm:
    """How the statistics of `cfg.ggeur` travel: what nothing needs does not."""
    content = _HOLDS[ggeur.statistics]
    needs = [need for _, need in _needs(ggeur)]
    # With a scatter for each class go all statistics that training may come to need.
    if all(need == "means" for need in needs) and (content != "class" or _alone(ggeur)):
        content = "means"
    # A head in closed form inverts statistics: they travel exactly then.
    exact = ggeur.closed_form != "none"
    chosen = ggeur.compressed
    if ggeur.statistics != "compressed":
        return StatisticsForm(content, exact)
    rank = None if chosen.rank == NOT_SET else int(chosen.rank)
    how = Compression(rank, float(chosen.energy), chosen.dtype)
    return StatisticsForm(content, exact, how)


def statistics_problems(ggeur) -> Iterator[str]:
    """What cannot be had from the statistics that are to travel."""
    chosen = ggeur.statistics
    if chosen == "class":
        return
    held = NEEDS.index(_HOLDS[chosen])
    missing = [(what, need) for what, need in _needs(ggeur) if NEEDS.index(need) > held]
    if ggeur.closed_form == "none" and len(missing) == len(list(_needs(ggeur))):
        fitting = [n for n, f in CLOSED_FORMS.items() if NEEDS.index(f.NEEDS) <= held]
        steps = ", for ggeur.steps with ggeur.geometry: pooled or ggeur.space: whitened"
        yield (
            f"ggeur.statistics: {chosen} is for ggeur.closed_form: "
            f"{' or '.join(fitting)}{'' if chosen == 'means' else steps}"
        )
        return
    for what, need in missing:
        enough = NEEDS.index(need)
        allowed = [name for name, has in _HOLDS.items() if NEEDS.index(has) >= enough]
        yield (
            f"ggeur.statistics: must be {' or '.join(allowed)} with {what}, "
            f"{_MISSING[need]}"
        )


def _needs(ggeur) -> Iterator[tuple[str, str]]:
    """What takes the statistics of round 0, and what of them."""
    form = CLOSED_FORMS.get(ggeur.closed_form)
    if form is not None:
        yield f"ggeur.closed_form: {ggeur.closed_form}", form.NEEDS
    if _alone(ggeur):
        return
    if ggeur.augmentation == "ggeur" and ggeur.steps:
        pooled = ggeur.geometry == "pooled"
        what = "ggeur.steps that are not []"
        yield (
            what + (" and ggeur.geometry: pooled" if pooled else ""),
            ("pooled" if pooled else "class"),
        )
    if ggeur.space == "whitened" and METHODS.find(ggeur.base_method).federated:
        yield "ggeur.space: whitened", "pooled"
    if ggeur.calibrate != "none":
        yield f"ggeur.calibrate: {ggeur.calibrate}", "class"


def _alone(ggeur) -> bool:
    """Whether a head in closed form is the whole run."""
    return ggeur.closed_form != "none" and ggeur.init == "random"
