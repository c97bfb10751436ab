"""Settings of the one-shot (closed-form) head."""

from __future__ import annotations

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import Objection, Objections, Section, key, one_of


class ClosedFormKeys(Section):
    """The settings of the one-shot head."""

    closed_form: str = key(
        "none",
        "A one-shot head, computed from the statistics of round 0: none, or a "
        "closed form.",
        CLOSED_FORMS.rule,
        shared=True,
    )
    init: str = key(
        "random",
        "Where training starts. random: at random weights. closed_form: at the head "
        "that ggeur.closed_form names. With random and a closed form, nothing is "
        "trained: the closed form is the result.",
        one_of("random", "closed_form"),
        shared=True,
    )
    temperature: str = key(
        "leave_one_out",
        "How the head's probabilities are calibrated. leave_one_out: a temperature "
        "from the log-loss of the clients' rows, each left out of the head; under "
        "secure sums and in a book from the totals; a trained head takes 150 or more "
        "validation rows instead, or with keep best or average up to 15% of the "
        "training rows, which it then does not train on. none: not at all.",
        one_of("leave_one_out", "none"),
        shared=True,
    )
    confidences: bool = key(
        False,
        "Clients send, as 65 counts, how confident the one-shot head is on their "
        "rows, each left out of the head. `predict --flag-below` needs these counts.",
        shared=True,
    )
    keep: str = key(
        "trained",
        "With init closed_form: which head the run keeps. trained: the trained one. "
        "best: the one-shot head or the trained one, whichever does better on "
        "validation rows; without them the trained one only if clients have rows of "
        "classes that nobody sent. average: as best, or the mean of both heads' "
        "probabilities. The run keeps the mean if rows have at most 160 columns or 20 "
        "classes, or if every class was sent and more than 2% of the rows are "
        "withheld; unless the one-shot head is right on nearly all left-out rows and "
        "no rows validate. For so few columns or classes an MLP is trained, from "
        "random weights. Rows that are not trained on may choose the share of each "
        "head, and a part of the probabilities that all classes share equally. If "
        "labels and domains are confounded in part, or no class is in two domains, "
        "the heads have equal shares. Only then, or if nobody sent some classes, rows "
        "are drawn for the mean.",
        one_of("trained", "best", "average"),
        shared=True,
    )

    @property
    def keeps_best(self) -> bool:
        """Whether the run leaves the one-shot head, the trained one, or their mean."""
        starts = self.closed_form != "none" and self.init == "closed_form"
        return starts and self.keep != "trained"


def objections(run: Demands) -> Objections:
    """The settings that exclude a one-shot head, and those that require one."""
    own = run.of(ClosedFormKeys)
    if run.form is None and own.init != "random":
        trainable = [name for name, form in CLOSED_FORMS.items() if form.trainable]
        why = f"which gives no head to start from; take {' or '.join(trainable)}"
        yield Objection("closed_form", {"init": ["random"]}, why)
    if own.init == "random":
        yield Objection("init", {"keep": ["trained"]}, "which leaves only one head")
    if run.closed_form and not run.trains:
        why = "where a head in closed form is the whole run"
        yield Objection("init", {"calibrate": ["none"]}, why)
    if own.confidences and not run.seeks_temperature:
        why = "which makes clients score their left-out rows"
        yield Objection("confidences", {"temperature": ["leave_one_out"]}, why)
    if own.keep == "average":
        known = CLOSED_FORMS.present()
        asking = [n for n, f in known.items() if f.trainable and f.asks]
        forms = [name for name in asking if CLOSED_FORMS[name].leaves_out()]
        why = "which needs clients' answers on left-out rows"
        yield Objection("keep", {"closed_form": forms}, why)
