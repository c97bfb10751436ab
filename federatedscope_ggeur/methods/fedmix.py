"""FedMix (Yoon et al., 2021): mixup with means of other clients' rows."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks
from federatedscope_ggeur.methods.fedavg import FedAvg


class FedMix(FedAvg):
    """Mixes rows with means of the clients' rows by a Taylor expansion (MAFL).

    The loss of a batch is
    ``(1-m) CE(f((1-m) x), y) + m CE(f((1-m) x), ybar) + m mean_i(g_i . xbar)`` with
    ``g_i = d CE_i / dx`` at ((1-m) x_i, y_i), where (xbar, ybar) is one of the means of
    embeddings and of one-hot labels that all clients sent in round 0, drawn anew for
    every batch. Second derivatives of the head are taken by autograd. Without any
    means the loss is the cross-entropy. With dropout, a loss term of a base method
    draws units of its own.

    A client makes its means of its rows in random order, since they may stand class by
    class; rows that do not fill a mean are left out, and so are those of a class that
    it has fewer than `min_samples` rows of.

    Parameters
    ----------
    weight : float
        m, below 1; 0 is FedAvg up to rounding.
    batch_size : int
        Rows of a mean; `min_samples` at least.
    """

    name = "fedmix"

    def __init__(self, weight: float = 0.05, batch_size: int = 5):
        self.weight, self.batch_size = weight, batch_size

    def share_shapes(self, head):
        return {"means": (None, head.in_features + head.num_classes)}

    def share(self, features, labels, context):
        size = max(self.batch_size, context.min_samples)
        allowed = context.counts >= context.min_samples
        rows = allowed[labels].nonzero().flatten()
        generator = context.generator("fedmix")
        order = rows[torch.randperm(len(rows), generator=generator)]
        used = order[: len(order) // size * size]
        hot = F.one_hot(labels[used], context.head.num_classes)
        both = torch.cat([features[used], hot.to(features.dtype)], dim=1)
        return {"means": both.view(-1, size, both.shape[1]).mean(dim=1)}

    def combine(self, shared):
        return {"means": torch.cat([own["means"] for own in shared.values()])}

    def local(self, context: LocalContext) -> LocalHooks:
        m, head = self.weight, context.head
        means = context.shared["means"]
        if not len(means):
            return LocalHooks()
        mean_x, mean_y = means.split([head.in_features, head.num_classes], dim=1)
        generator = context.generator("fedmix")

        def objective(head, features, labels):
            row = torch.randint(len(means), (), generator=generator)
            x = ((1 - m) * features).requires_grad_(True)
            logits = head(x)
            losses = F.cross_entropy(logits, labels, reduction="none")
            # Summed, so that each row of g is the gradient of its own loss.
            (g,) = torch.autograd.grad(losses.sum(), x, create_graph=True)
            other = F.cross_entropy(logits, mean_y[row].expand_as(logits))
            slope = (g @ mean_x[row]).mean()
            return (1 - m) * losses.mean() + m * other + m * slope

        return LocalHooks(objective=objective)
