"""Settings of training: the method, the model, and limits for clients."""

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    positive_share,
    whole,
)

KEYS = (
    Key(
        "base_method",
        next(iter(METHODS)),
        "Federated optimisation method that GGEUR is combined with.",
        METHODS.rule,
        shared=True,
    ),
    Key(
        "mlp_hidden_dim",
        0.0,
        "Hidden units of the head, of which training drops model.dropout (0.5 by FS's "
        "default, 0 in the example configs); 0: a linear head.",
        whole(0, maximum=2**16),
        shared=True,
    ),
    Key(
        "max_share",
        1.0,
        "The largest share of one client in an average of updates; larger weights "
        "are cut. 1: no limit. The log names the largest share.",
        positive_share,
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
