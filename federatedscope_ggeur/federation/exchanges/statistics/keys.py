"""Settings of class statistics: how they travel, and the min-count threshold."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.steps import plugin_steps, steps_of
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.models import CLOSED_FORMS, NEEDS
from federatedscope_ggeur.settings import (
    Objection,
    Objections,
    Section,
    key,
    one_of,
    positive_share,
    whole,
)


class StatisticsKeys(Section):
    """The settings of class statistics."""

    statistics: str = key(
        "needed",
        "What a client sends in round 0, beside the counts and means of its classes. "
        "class: a scatter matrix for each class. summed: at most one scatter, summed "
        "over classes; most closed forms need no more. means: no scatter. needed: the "
        "least of these three that the run needs. compressed: the main directions of "
        "the summed scatter, in few bits.",
        one_of("needed", "class", "summed", "means", "compressed"),
        shared=True,
    )
    compressed_rank: int | None = key(
        170,
        "Compressed statistics: the largest number of directions of the scatter; -1: "
        "as many as compressed.energy needs.",
        whole(1, not_set_allowed=True),
        name="compressed.rank",
        shared=True,
    )
    compressed_energy: float = key(
        0.95,
        "Compressed statistics: share of a client's scatter that the directions keep, "
        "above 0 and at most 1. compressed.rank can lower it.",
        positive_share,
        name="compressed.energy",
        shared=True,
    )
    compressed_dtype: str = key(
        "int8",
        "Compressed statistics: number format of means and directions. Each row has a "
        "scale of its own.",
        one_of("int8", "float16", "float32"),
        name="compressed.dtype",
        shared=True,
    )
    round0_window: int = key(
        8, "How many clients the server asks for statistics at a time.", whole(1)
    )
    min_samples: int = key(
        5,
        "Min-count threshold: a client sends nothing of a class in which it has fewer "
        "rows than this. 1 is the paper's run; it reveals single embeddings.",
        whole(1),
        name="privacy.min_samples",
    )
    float32_means: bool = key(
        False,
        "Round class means to float32 before they are sent. The difference of two "
        "means then reveals less of a row that only one of them has.",
        name="privacy.float32_means",
    )


#: What statistics can hold at most, in the words of the closed forms.
_HOLDS = {
    "needed": "class",
    "class": "class",
    "summed": "pooled",
    "compressed": "pooled",
    "means": "means",
}
_WHY = {
    "class": "which needs the covariance of each class",
    "pooled": "which needs the scatter within classes",
}


def needed_content(run: Demands) -> str:
    """What travels beside counts and means; parts that nothing needs are not sent."""
    most = run.of(StatisticsKeys).statistics
    if most == "class":
        return "class"
    needs = (NEEDS.index(need) for _, need in _needs(run))
    return NEEDS[min(max(needs, default=0), NEEDS.index(_HOLDS[most]))]


def statistics_form(run: Demands) -> StatisticsForm:
    """The form in which statistics travel."""
    # A one-shot head inverts the scatters, so they travel exactly.
    exact = run.closed_form
    return StatisticsForm(needed_content(run), exact, steps=steps_of(run))


def objections(run: Demands) -> Objections:
    """The settings that need more statistics than clients send; steps without use."""
    if run.statistics and not run.own_statistics:
        for name in plugin_steps(run):
            yield (
                "plugins",
                f"the step '{name}' cannot be taken where another exchange asks for "
                "statistics (secure sums, noise, a book); remove the plugin",
            )
    held_in = run.of(StatisticsKeys).statistics
    held = NEEDS.index(_HOLDS[held_in])
    needs = {what: NEEDS.index(need) for what, need in _needs(run)}
    missing = {what: need for what, need in needs.items() if need > held}
    if not run.closed_form and missing == needs and held < NEEDS.index("class"):
        forms = [n for n, f in CLOSED_FORMS.items() if NEEDS.index(f.NEEDS) <= held]
        uses = [f"{setting('closed_form')}: {' or '.join(forms)}"]
        if held:
            uses.append(f"{setting('steps')} with {setting('geometry')}: pooled")
        yield "statistics", f"{held_in} needs one of {', or '.join(uses)}"
        return
    for what, need in missing.items():
        allowed = [n for n, has in _HOLDS.items() if NEEDS.index(has) >= need]
        yield Objection(what, {"statistics": allowed}, _WHY[NEEDS[need]])


def _needs(run: Demands) -> Iterator[tuple[str, str]]:
    """The settings that need statistics in round 0, each with what it needs."""
    if run.form is not None:
        yield "closed_form", run.form.NEEDS
    if run.steps:
        yield ("geometry", "pooled") if run.pooled_geometry else ("steps", "class")
    if run.calibrates and run.trains:
        yield "calibrate", "class"
