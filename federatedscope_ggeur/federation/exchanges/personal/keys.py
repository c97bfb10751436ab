"""Settings of clients' own one-shot heads."""

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.settings import Key, Objection, Objections, one_of

KEYS = (
    Key(
        "personal.head",
        "none",
        "Each client's own head beside the one-shot head. none: no own heads. means: "
        "LDA whose class means lie between the client's means and the merged means.",
        one_of("none", "means"),
        shared=True,
    ),
    Key(
        "personal.prior",
        "global",
        "Class priors of the clients' own heads. global: the priors of the one-shot "
        "head. own: the client's class shares; they help only on rows with the same "
        "shares.",
        one_of("global", "own"),
        shared=True,
    ),
)


def objections(run: Demands) -> Objections:
    """The settings that exclude clients' own heads, and those that require them."""
    if run.personal:
        why = "since a client's own head starts from LDA"
        taken = {"closed_form": ["lda", "auto"], "temperature": ["leave_one_out"]}
        yield Objection("personal.head", taken, why)
    else:
        why = "which gives clients no own heads"
        yield Objection("personal.head", {"personal.prior": ["global"]}, why)
