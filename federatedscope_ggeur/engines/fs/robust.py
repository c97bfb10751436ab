"""FederatedScope's (FS's) robust aggregation rules in place of FedAvg's mean."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from federatedscope_ggeur.heads import load_vector, named_tensors
from federatedscope_ggeur.methods import FedAvg, Update


class RobustFedAvg(FedAvg):
    """FedAvg whose mean is an FS aggregator: krum, median, trimmedmean, ...

    FS's robust aggregators take differences from their own model and return weights.

    Parameters
    ----------
    aggregator : federatedscope.core.aggregators.Aggregator
    """

    def __init__(self, aggregator):
        self._aggregator = aggregator

    def step(self, params: Tensor, updates: Sequence[Update], state, context):
        head = context.head
        load_vector(head, params)
        self._aggregator.model = head
        feedback = [
            (
                update.weight,
                {
                    name: t.clone()
                    for name, t in named_tensors(head, update.params - params).items()
                },
            )
            for update in updates
            if update.weight
        ]
        if not feedback:
            return params, {}
        result = self._aggregator.aggregate({"client_feedback": feedback})
        merged = params.clone()
        for name, part in named_tensors(head, merged).items():
            part.copy_(result[name])
        return merged, {}
