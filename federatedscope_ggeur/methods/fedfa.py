"""FedFA+ for embeddings (seed paper, Eqs. 4-10): noise where clients differ."""

from __future__ import annotations

import torch

from federatedscope_ggeur.settings import Key, fraction

from .base import LocalContext, LocalHooks, Method, weighted_mean
from .contexts import TensorSpec, value_problem
from .registry import register_augmentation


@register_augmentation("fedfa")
class FedFA(Method):
    """Adds noise to a batch x of embeddings: ``x + e sqrt((gamma + 1) Var_B(x))``.

    e ~ N(0, 1) is drawn for every row and dimension. Var_B is the batch's variance
    (divided by its size). The server computes gamma from r_k, the means of the clients'
    plain embeddings. ``s_j = Var_k(r_kj)`` is the variance over the clients of the
    round (divided by their number). Then ``q_j = s_j / (1 + s_j)`` and ``gamma_j = D
    q_j / sum(q)``. gamma is 1 before the first round, and if all s are 0. This is FedFA
    for maps of one pixel: an embedding is its own mean.

    In the paper r_k is a running mean over training batches (decay 0.99), sent after
    every round. Here embeddings are frozen, so a running mean would estimate a
    constant, and two successive ones would reveal the rows between them. So r_k is the
    exact mean of the client's own rows, sent once. It leaves out classes with fewer
    than `min_samples` rows. A client with no other classes says only that, and does not
    count in s.

    `probability` is the share of batches that get noise. With 0 the method is FedAvg,
    to the bit.
    """

    meaning = (
        "adds Gaussian noise to a batch's embeddings, more in dimensions in which "
        "clients differ"
    )
    source = "FedFA+, Eqs. 4-10"
    sends = (
        "in round 0: the mean of the client's embeddings, D numbers, and whether there "
        "is one"
    )
    receives = "gamma: D numbers"
    SETTINGS = (
        Key("probability", 0.5, "Probability that a batch gets noise.", fraction()),
    )

    probability: float

    def model_problem(self, model):
        if not model.takes_images:
            return ""
        return "adds noise to embeddings, not to pixels; with a network take fedfa_plus"

    def init_upload_shapes(self, model):
        known = TensorSpec((1,), torch.int64)
        return {"mean": TensorSpec((model.in_features,)), "known": known}

    def init_upload_problem(self, init_upload, model):
        if int(init_upload["known"]) not in (0, 1):
            return "'known' must be 0 or 1"
        return value_problem("'mean'", init_upload["mean"])

    def init_upload(self, features, labels, context):
        allowed = context.told
        rows = features[allowed[labels]].double()
        mean = rows.sum(dim=0) / max(len(rows), 1)
        return {"mean": mean.float(), "known": torch.tensor([int(len(rows) > 0)])}

    def initial_state(self, params, context):
        return {"gamma": torch.ones(context.model.in_features)}

    def download(self, state):
        return state

    def local(self, context: LocalContext) -> LocalHooks:
        gamma, generator = context.download["gamma"], context.generator("fedfa")

        def transform(x, y):
            if torch.rand((), generator=generator) >= self.probability:
                return x
            noise = torch.randn(x.shape, generator=generator).to(x.device)
            return x + noise * ((gamma + 1) * x.var(dim=0, unbiased=False)).sqrt()

        return LocalHooks(transform=transform)

    def step(self, params, updates, state, context):
        uploads = [
            context.init_uploads[update.client]
            for update in updates
            if update.aggregation_weight
        ]
        means = [upload["mean"] for upload in uploads if upload["known"]]
        if means:
            state = {"gamma": _gamma(torch.stack(means))}
        return weighted_mean(params, updates), state


def _gamma(means: torch.Tensor) -> torch.Tensor:
    """Compute gamma [D] from the means [S, D] of the clients of a round."""
    spread = means.double().var(dim=0, unbiased=False)
    share = spread / (1 + spread)
    gamma = len(share) * share / share.sum() if share.any() else torch.ones_like(share)
    return gamma.float()
