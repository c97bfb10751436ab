"""FederatedScope's (FS's) robust aggregation rules in place of FedAvg's mean."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from federatedscope_ggeur.cfg_ggeur import get_key
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method, Update
from federatedscope_ggeur.models import named_tensors

#: Each rule's argument in `aggregator.BFT_args`, and m: with h hostile clients it needs
#: m h + 3 clients; 0: any number.
RULES = {
    "krum": ("krum_agg_num", 2),
    "median": ("", 2),
    "trimmedmean": ("trimmedmean_excluded_ratio", 2),
    "bulyan": ("", 4),
    "normbounding": ("normbounding_norm_bound", 0),
}


def least_clients(cfg) -> int:
    """The least number of clients that ``aggregator.robust_rule`` needs."""
    per_hostile = RULES[cfg.aggregator.robust_rule][1]
    return per_hostile * cfg.aggregator.byzantine_node_num + 3 if per_hostile else 1


def robust_problems(cfg) -> list[str]:
    """The problems of ``aggregator.robust_rule``, each as a line.

    FS itself finds them late and does not name the key.
    """
    rule, hostile = cfg.aggregator.robust_rule, cfg.aggregator.byzantine_node_num
    if rule not in RULES:
        return []
    found, argument = [], RULES[rule][0]
    given = f"aggregator.robust_rule: {rule}"
    # The rule guards the mean of models, and nothing else that clients send.
    guarded = {
        "base_method": [
            name for name, part in METHODS.present().items() if part.robust
        ],
        "augmentation": AUGMENTATIONS.taken,
        "closed_form": ["none"],
        "calibrate": ["none"],
    }
    for name, allowed in guarded.items():
        value = get_key(cfg, f"ggeur.{name}")
        if value not in allowed:
            found.append(
                f"  aggregator.robust_rule: {rule} works only with ggeur.{name}: "
                f"{' or '.join(allowed)}, got {value}"
            )
    if argument and argument not in cfg.aggregator.BFT_args:
        found.append(
            f"  aggregator.BFT_args.{argument}: must be set in the file with {given}"
        )
    needed = least_clients(cfg)
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


class _Weights:
    """The weights of a model by name, in the form that FS's aggregators use.

    Running statistics are left out, since a robust mean does not need them.
    """

    def __init__(self, weights: dict[str, Tensor]):
        self._weights = weights

    def state_dict(self) -> dict[str, Tensor]:
        return self._weights


class RobustFedAvg(Method):
    """FedAvg with an FS aggregator in place of the mean, such as krum or median.

    FS's robust aggregators take differences from their own model and return weights.

    Parameters
    ----------
    aggregator : federatedscope.core.aggregators.Aggregator
    least : int
        The least number of updates that the aggregator needs.
    """

    def __init__(self, aggregator, least: int = 1):
        self._aggregator, self._least = aggregator, least

    def step(self, params: Tensor, updates: Sequence[Update], state, context):
        model = context.model
        self._aggregator.model = _Weights(named_tensors(model, params))
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
        if len(feedback) < self._least:
            raise GGEURError(
                f"round {context.round_number}: {len(feedback)} updates, but "
                f"aggregator.robust_rule needs at least {self._least} with this "
                "aggregator.byzantine_node_num; bring the missing clients back "
                "(ggeur.quorum sets how many must be present), or draw more clients "
                "in each round"
            )
        result = self._aggregator.aggregate({"client_feedback": feedback})
        merged = params.clone()
        for name, part in named_tensors(model, merged).items():
            part.copy_(result[name])
        return merged, {}
