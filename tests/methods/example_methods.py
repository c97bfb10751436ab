"""Rivals of GGEUR in their shortest form, to show what the interface serves.

They are straight from the formulas and for tests only.
"""

import torch
from torch.nn import functional as F

from federatedscope_ggeur.methods import FedAvg, LocalHooks, weighted_mean


class FedMix(FedAvg):
    """Mixup with means of other clients' rows, by a Taylor expansion (Yoon, 2021)."""

    def __init__(self, m, batch=4):
        self.m, self.batch = m, batch

    def share_shapes(self, head):
        return {
            "features": (None, head.in_features),
            "labels": (None, head.num_classes),
        }

    def share(self, features, labels, context):
        size = max(self.batch, context.min_samples)
        usable = len(labels) // size * size
        hot = F.one_hot(labels, context.head.num_classes).float()

        def means(rows):
            return rows[:usable].view(-1, size, rows.shape[1]).mean(dim=1)

        return {"features": means(features), "labels": means(hot)}

    def combine(self, shared):
        names = ("features", "labels")
        return {name: torch.cat([s[name] for s in shared.values()]) for name in names}

    def local(self, context):
        m, mean_x, mean_y = self.m, context.shared["features"], context.shared["labels"]
        generator = context.generator("mix")

        def objective(head, features, labels):
            row = torch.randint(len(mean_x), (), generator=generator)
            x = ((1 - m) * features).requires_grad_(True)
            logits = head(x)
            losses = F.cross_entropy(logits, labels, reduction="none")
            (g,) = torch.autograd.grad(losses.sum(), x, create_graph=True)
            other = F.cross_entropy(logits, mean_y[row].expand_as(logits))
            slope = (g @ mean_x[row]).mean()
            return (1 - m) * losses.mean() + m * other + m * slope

        return LocalHooks(objective=objective)


class FedFA(FedAvg):
    """Embeddings shaken by how much clients' means differ (FedFA+, Eqs. 4-10)."""

    def __init__(self, probability):
        self.probability = probability

    def upload_shapes(self, head):
        return {"r": (head.in_features,)}

    def initial_state(self, params, context):
        return {"gamma": torch.ones(context.head.in_features)}

    def download(self, state):
        return state

    def local(self, context):
        gamma, generator = context.download["gamma"], context.generator("shake")
        r = context.state.get("r", torch.zeros_like(gamma))

        def transform(x, y):
            nonlocal r
            r = 0.99 * r + 0.01 * x.mean(dim=0)
            if torch.rand((), generator=generator) >= self.probability:
                return x
            noise = torch.randn(x.shape, generator=generator)
            return x + noise * ((gamma + 1) * x.var(dim=0, correction=0)).sqrt()

        def finish(outcome):
            return {"r": r}, {"r": r}

        return LocalHooks(transform=transform, finish=finish)

    def step(self, params, updates, state, context):
        spread = torch.stack([u.upload["r"] for u in updates]).var(dim=0, correction=0)
        share = spread / (1 + spread)
        gamma = len(share) * share / share.sum() if share.any() else state["gamma"]
        return weighted_mean(params, updates), {"gamma": gamma}
