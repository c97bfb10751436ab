"""FedFA+ (seed paper, Eqs. 4-10): embeddings shaken by how clients differ."""

from __future__ import annotations

import torch

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, weighted_mean
from federatedscope_ggeur.methods.fedavg import FedAvg

#: Of the running mean, over batches.
DECAY = 0.99


class FedFA(FedAvg):
    """A batch x becomes ``x + e sqrt((gamma + 1) Var_B(x))``, e ~ N(0, 1).

    e is drawn for every row and dimension, Var_B is the batch's variance (divided by
    its size). The server makes gamma of the clients' running means r_k of the plain
    embeddings: ``s_j = Var_k(r_kj)`` over the clients of the round (divided by their
    number), ``q_j = s_j / (1 + s_j)``, ``gamma_j = D q_j / sum(q)``; 1 before the first
    round and where all s are 0. This is FedFA for maps of one pixel: an embedding is
    its own mean, and nothing varies over space.

    A client sends nothing while it has fewer than `min_samples` own rows, or of a round
    that saw fewer rows: two running means in a row give away what came between them.

    Parameters
    ----------
    probability : float
        Of a batch being shaken; 0 is FedAvg, to the bit.
    """

    name = "fedfa"

    def __init__(self, probability: float = 0.5):
        self.probability = probability

    def upload_shapes(self, head):
        return {"mean": (head.in_features,), "batches": (1,)}

    def initial_state(self, params, context):
        return {"gamma": torch.ones(context.head.in_features)}

    def download(self, state):
        return state

    def local(self, context: LocalContext) -> LocalHooks:
        gamma, generator = context.download["gamma"], context.generator("fedfa")
        mean = context.state.get("mean", torch.zeros_like(gamma))
        batches = context.state.get("batches", torch.zeros(1, dtype=torch.int64))
        rows = 0

        def transform(x, y):
            nonlocal mean, batches, rows
            mean = DECAY * mean + (1 - DECAY) * x.mean(dim=0)
            batches, rows = batches + 1, rows + len(x)
            if torch.rand((), generator=generator) >= self.probability:
                return x
            noise = torch.randn(x.shape, generator=generator)
            return x + noise * ((gamma + 1) * x.var(dim=0, unbiased=False)).sqrt()

        def finish(outcome):
            state = {"mean": mean, "batches": batches}
            if min(rows, int(context.counts.sum())) < max(context.min_samples, 1):
                return {name: torch.zeros_like(t) for name, t in state.items()}, state
            started = 1 - DECAY ** int(batches)
            return {"mean": mean / started, "batches": batches}, state

        return LocalHooks(transform=transform, finish=finish)

    def step(self, params, updates, state, context):
        means = [u.upload["mean"] for u in updates if u.upload["batches"] > 0]
        if means:
            state = {"gamma": _gamma(torch.stack(means))}
        return weighted_mean(params, updates), state


def _gamma(means: torch.Tensor) -> torch.Tensor:
    """From the running means [S, D] of the clients of a round: shape (D,)."""
    # No square of a float32 overflows in float64.
    spread = means.double().var(dim=0, unbiased=False)
    share = spread / (1 + spread)
    gamma = len(share) * share / share.sum() if share.any() else torch.ones_like(share)
    return gamma.float()
