"""What of the class statistics and shapes travels: keys, checks, the form."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import Compression
from federatedscope_ggeur.models import CLOSED_FORMS, NEEDS
from federatedscope_ggeur.settings import NOT_SET, Key, one_of, positive_share, whole

STATISTICS_KEYS = (
    Key(
        "statistics",
        "class",
        "What clients send in round 0 beside counts and means, at most: class, a "
        "scatter for each class; summed, one summed over classes, which is enough for "
        "most closed forms; means, nothing; compressed, the first directions of the "
        "summed one, in few bits.",
        one_of("class", "summed", "means", "compressed"),
        shared=True,
    ),
    Key(
        "compressed.rank",
        170.0,
        "Compressed statistics: directions of the scatter, at most; -1: as many as "
        "compressed.energy asks for.",
        whole(1, not_set_allowed=True),
        shared=True,
    ),
    Key(
        "compressed.energy",
        0.95,
        "Compressed statistics: share of a client's scatter that the directions hold, "
        "above 0 and at most 1, if compressed.rank allows.",
        positive_share,
        shared=True,
    ),
    Key(
        "compressed.dtype",
        "int8",
        "Compressed statistics: what means and directions are rounded to, with one "
        "scale a row.",
        one_of("int8", "float16", "float32"),
        shared=True,
    ),
    Key(
        "geometry",
        "class",
        "Shapes that the server sends for GGEUR's steps: class, one for each class; "
        "pooled, one for all, of the scatter within classes.",
        one_of("class", "pooled"),
        shared=True,
    ),
)

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


def statistics_form(ggeur, demands: Demands) -> StatisticsForm:
    """How the statistics of `cfg.ggeur` travel: what nothing needs does not."""
    content = _HOLDS[ggeur.statistics]
    needs = [need for _, need in _needs(ggeur, demands)]
    # Training may come to need the scatters: by class, they are left out without it.
    if all(need == "means" for need in needs) and (
        content != "class" or not demands.trains
    ):
        content = "means"
    # A head in closed form inverts statistics: they travel exactly then.
    exact = ggeur.closed_form != "none"
    chosen = ggeur.compressed
    if ggeur.statistics != "compressed":
        return StatisticsForm(content, exact)
    rank = None if chosen.rank == NOT_SET else int(chosen.rank)
    how = Compression(rank, float(chosen.energy), chosen.dtype)
    return StatisticsForm(content, exact, how)


def statistics_problems(ggeur, demands: Demands) -> Iterator[str]:
    """What cannot be had from the statistics that are to travel."""
    chosen = ggeur.statistics
    if chosen == "class":
        return
    held = NEEDS.index(_HOLDS[chosen])
    needs = list(_needs(ggeur, demands))
    missing = [(what, need) for what, need in needs if NEEDS.index(need) > held]
    if ggeur.closed_form == "none" and len(missing) == len(needs):
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


def _needs(ggeur, demands: Demands) -> Iterator[tuple[str, str]]:
    """What takes the statistics of round 0, and what of them."""
    form = CLOSED_FORMS.get(ggeur.closed_form)
    if form is not None:
        yield f"ggeur.closed_form: {ggeur.closed_form}", form.NEEDS
    if demands.steps:
        pooled = ggeur.geometry == "pooled"
        what = "ggeur.steps that are not []"
        yield (
            what + (" and ggeur.geometry: pooled" if pooled else ""),
            ("pooled" if pooled else "class"),
        )
    if demands.space == "whitened" and demands.federated:
        yield "ggeur.space: whitened", "pooled"
    if demands.calibrates and demands.trains:
        yield f"ggeur.calibrate: {ggeur.calibrate}", "class"
