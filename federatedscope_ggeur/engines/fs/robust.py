"""FederatedScope's (FS's) robust aggregation rules in place of FedAvg's mean."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from federatedscope_ggeur.cfg_ggeur import get_key
from federatedscope_ggeur.methods import (
    AUGMENTATIONS,
    METHODS,
    Method,
    Update,
)
from federatedscope_ggeur.models import load_vector, named_tensors

#: Each rule's argument in `aggregator.BFT_args`, and the clients that it needs for each
#: hostile one, beside three.
RULES = {
    "krum": ("krum_agg_num", 2),
    "median": ("", 2),
    "trimmedmean": ("trimmedmean_excluded_ratio", 2),
    "bulyan": ("", 4),
    "normbounding": ("normbounding_norm_bound", 0),
}


def robust_problems(cfg) -> list[str]:
    """What is wrong with ``aggregator.robust_rule``, a line each.

    FS says it late and without the key's name.
    """
    rule, hostile = cfg.aggregator.robust_rule, cfg.aggregator.byzantine_node_num
    if rule not in RULES:
        return []
    found, (argument, per_hostile) = [], RULES[rule]
    given = f"aggregator.robust_rule: {rule}"
    # Of all that a server may make of what clients send, it guards the mean of models.
    guarded = {
        "base_method": [name for name, part in METHODS.items() if part.robust],
        "augmentation": AUGMENTATIONS.taken,
        "closed_form": ["none"],
        "calibrate": ["none"],
    }
    for name, allowed in guarded.items():
        value = get_key(cfg, f"ggeur.{name}")
        if value not in allowed:
            found.append(
                f"  aggregator.robust_rule: {rule} works with ggeur.{name}: "
                f"{' or '.join(allowed)} alone, got {value}"
            )
    if argument and argument not in cfg.aggregator.BFT_args:
        found.append(
            f"  aggregator.BFT_args.{argument}: must be set in the file with {given}"
        )
    needed = per_hostile * hostile + 3 if per_hostile else 1
    if cfg.federate.client_num < needed:
        found.append(
            f"  federate.client_num: must be {needed} at least with {given} and "
            f"aggregator.byzantine_node_num: {hostile}"
        )
    if rule == "bulyan" and not 0 < cfg.federate.sample_client_rate <= 1:
        found.append(
            f"  federate.sample_client_rate: must be in (0, 1] with {given}, which "
            "counts by it"
        )
    return found


class RobustFedAvg(Method):
    """FedAvg whose mean is an FS aggregator: krum, median, trimmedmean, ...

    FS's robust aggregators take differences from their own model and return weights.

    Parameters
    ----------
    aggregator : federatedscope.core.aggregators.Aggregator
    """

    def __init__(self, aggregator):
        self._aggregator = aggregator

    def step(self, params: Tensor, updates: Sequence[Update], state, context):
        model = context.model
        load_vector(model, params)
        self._aggregator.model = model
        feedback = [
            (
                update.aggregation_weight,
                {
                    name: t.clone()
                    for name, t in named_tensors(model, update.params - params).items()
                },
            )
            for update in updates
            if update.aggregation_weight
        ]
        if not feedback:
            return params, {}
        result = self._aggregator.aggregate({"client_feedback": feedback})
        merged = params.clone()
        for name, part in named_tensors(model, merged).items():
            part.copy_(result[name])
        return merged, {}
