"""Settings of evaluation."""

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.settings import Key, Objection, Objections, names

KEYS = (
    Key(
        "unseen_domains",
        [],
        "Domains for the test alone: no client holds them, and every evaluation "
        "scores them (leave one domain out).",
        names("domain names"),
    ),
)


def objections(run: Demands) -> Objections:
    """The settings that cannot go with early stopping by test rows."""
    if run["best_by"].startswith("test_"):
        why = "since test rows may not decide when a run ends"
        yield Objection("best_by", {"patience": [0]}, why)
