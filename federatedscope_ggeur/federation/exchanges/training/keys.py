"""Settings of training: the method, the model, and limits for clients."""

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    one_of,
    positive_share,
    whole,
)

#: Where clients of an embedded run may train at once.
BATCHED = ("gpu", "always", "never")

KEYS = (
    Key(
        "base_method",
        next(iter(METHODS)),
        "Federated method that GGEUR is combined with.",
        METHODS.rule,
        shared=True,
    ),
    Key(
        "mlp_hidden_dim",
        0.0,
        "Hidden units of an MLP head; 0: a linear head. Dropout is model.dropout: 0.5 "
        "by FS's default, 0 in the example configs.",
        whole(0, maximum=2**16),
        shared=True,
    ),
    Key(
        "max_share",
        1.0,
        "The largest share that one client has in an average of updates; 1: no limit. "
        "The log names the largest share.",
        positive_share,
    ),
    Key(
        "batched",
        BATCHED[0],
        "Where all clients of a round train at once, in one batched step: on a GPU, "
        "always, or never. The results differ from those of clients that train one "
        "after the other by rounding alone. It concerns linear and MLP heads on the "
        "embedded engine, and methods that have a batched form.",
        one_of(*BATCHED),
    ),
)


def objections(run: Demands) -> Objections:
    """The settings that cannot go with a number of mini-batches."""
    if run["batch_or_epoch"] == "batch":
        why = (
            "since rows are sorted by class, and only the first classes would be "
            "trained"
        )
        yield Objection("batch_or_epoch", {"shuffle": [True]}, why)
    if run["workers"] > 1:
        why = "which trains clients in other processes than their own"
        yield Objection("workers", {"batched": ["gpu", "never"]}, why)
