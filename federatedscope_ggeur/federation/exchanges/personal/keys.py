"""Settings of clients' own one-shot heads."""

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.settings import Key, Objection, Objections, one_of

KEYS = (
    Key(
        "personal.head",
        "none",
        "Heads that clients make for themselves beside the one-shot head. none: none. "
        "means: LDA whose class means lie between the client's own and the merged "
        "ones.",
        one_of("none", "means"),
        shared=True,
    ),
    Key(
        "personal.prior",
        "global",
        "Class priors of the clients' own heads. global: those of the head of all. "
        "own: the client's class shares, which help only on rows with the same "
        "shares.",
        one_of("global", "own"),
        shared=True,
    ),
)


def objections(run: Demands) -> Objections:
    """The settings that exclude clients' own heads, and those that require them."""
    if run.personal:
        why = "whose LDA is the base of a client's own head"
        taken = {"closed_form": ["lda", "auto"], "temperature": ["leave_one_out"]}
        yield Objection("personal.head", taken, why)
        if run.sums:
            why = "since clients report scores of their own rows"
            yield Objection("personal.head", {"secure_sums": ["none"]}, why)
        text = {"text.prior": [0], "text.ensemble": [0]}
        yield Objection("personal.head", text, "which is the same for all clients")
    else:
        why = "with which clients have no heads of their own"
        yield Objection("personal.head", {"personal.prior": ["global"]}, why)
