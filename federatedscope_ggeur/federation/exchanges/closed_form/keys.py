"""Settings of the one-shot (closed-form) head."""

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import Key, Objection, Objections, one_of

KEYS = (
    Key(
        "closed_form",
        "none",
        "A one-shot head, computed from the statistics of round 0: none, or a "
        "closed form.",
        CLOSED_FORMS.rule,
        shared=True,
    ),
    Key(
        "init",
        "random",
        "The start of training: random, or closed_form, the head of "
        "ggeur.closed_form. With random, a run with a closed form has no rounds of "
        "training.",
        one_of("random", "closed_form"),
        shared=True,
    ),
    Key(
        "temperature",
        "leave_one_out",
        "The calibration of a head's probabilities: leave_one_out, a temperature "
        "chosen by the log-loss of clients' left-out rows or, for a trained head, "
        "of at least 150 validation rows; or none.",
        one_of("leave_one_out", "none"),
        shared=True,
    ),
    Key(
        "confidences",
        False,
        "Whether clients report how sure the one-shot head is of their left-out "
        "rows, as 64 counts, which predict --flag-below needs.",
        one_of(True, False),
        shared=True,
    ),
    Key(
        "keep",
        "trained",
        "With init: closed_form, the head that the run leaves: trained, or best, "
        "which is the one-shot head or the trained head, as validation rows or "
        "leave-one-out prefer.",
        one_of("trained", "best"),
        shared=True,
    ),
)


def objections(run: Demands) -> Objections:
    """The settings that exclude a one-shot head, and those that require one."""
    if run.form is None:
        trainable = [name for name, form in CLOSED_FORMS.items() if form.trainable]
        why = f"which gives no head to start from; take {' or '.join(trainable)}"
        yield Objection("closed_form", {"init": ["random"]}, why)
    if run["init"] == "random":
        yield Objection("init", {"keep": ["trained"]}, "which leaves only one head")
    if run.closed_form and not run.trains:
        why = "where a head in closed form is the whole run"
        yield Objection("init", {"calibrate": ["none"]}, why)
    if run["confidences"] and not run.seeks_temperature:
        why = "which makes clients score their left-out rows"
        yield Objection("confidences", {"temperature": ["leave_one_out"]}, why)
    for field in ("prior", "ensemble"):
        takes = [n for n, f in CLOSED_FORMS.items() if getattr(f, f"takes_{field}")]
        if run["closed_form"] not in takes:
            why = f"which ignores it; only {' and '.join(takes)} use it"
            yield Objection("closed_form", {f"text.{field}": [0]}, why)
