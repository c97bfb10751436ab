"""Methods of the literature in their shortest form, to show what the interface serves.

They are straight from the formulas and for tests only.
"""

import torch
from torch.nn import functional as F

from federatedscope_ggeur.heads import num_parameters
from federatedscope_ggeur.methods import FedAvg, LocalHooks, weighted_mean


class FedProx(FedAvg):
    """CE + mu/2 |w - w_g|^2 (Li et al., 2020)."""

    def __init__(self, mu):
        self.mu = mu

    def local(self, context):
        def add_correction(params, gradient):
            gradient.add_(params - context.broadcast, alpha=self.mu)

        return LocalHooks(add_correction=add_correction)


class Scaffold(FedAvg):
    """Control variates on both sides (Karimireddy et al., 2020, option II)."""

    def __init__(self, rate=1.0):
        self.rate = rate

    def upload_shapes(self, head):
        return {"c": (num_parameters(head),)}

    def initial_state(self, params, context):
        return {"c": torch.zeros_like(params)}

    def download(self, state):
        return {"c": state["c"]}

    def local(self, context):
        start, c = context.broadcast, context.download["c"]
        own = context.state.get("c", torch.zeros_like(c))

        def add_correction(params, gradient):
            gradient.add_(c - own)

        def finish(outcome):
            if outcome.steps == 0:
                return {"c": torch.zeros_like(own)}, {"c": own}
            m = context.optimizer.options.get("momentum", 0.0)
            tau = (outcome.steps - m * (1 - m**outcome.steps) / (1 - m)) / (1 - m)
            moved = (start - outcome.params) / (context.optimizer.lr * tau)
            new = own - c + moved
            return {"c": new - own}, {"c": new}

        return LocalHooks(add_correction=add_correction, finish=finish)

    def step(self, params, updates, state, context):
        mean = weighted_mean(params, updates)
        everyone = sum(context.weights.values())
        change = sum(u.weight / everyone * u.upload["c"] for u in updates)
        return params + self.rate * (mean - params), {"c": state["c"] + change}


class FedDyn(FedAvg):
    """CE - <h_k, w> + a/2 |w - w_g|^2 (Acar et al., 2021)."""

    def __init__(self, a):
        self.a = a

    def initial_state(self, params, context):
        return {"h": torch.zeros_like(params)}

    def local(self, context):
        start = context.broadcast
        h = context.state.get("h", torch.zeros_like(start))

        def add_correction(params, gradient):
            gradient.add_(params - start, alpha=self.a).sub_(h)

        def finish(outcome):
            return {}, {"h": h - self.a * (outcome.params - start)}

        return LocalHooks(add_correction=add_correction, finish=finish)

    def step(self, params, updates, state, context):
        everyone = sum(context.weights.values())
        moved = sum(u.weight / everyone * (u.params - params) for u in updates)
        h = state["h"] - self.a * moved
        return weighted_mean(params, updates) - h / self.a, {"h": h}


class Moon(FedAvg):
    """Representations near the global model's, far from the own last one's (2021)."""

    def __init__(self, mu, temperature=0.5):
        self.mu, self.temperature = mu, temperature

    def local(self, context):
        def finish(outcome):
            return {}, {"params": outcome.params}

        if "params" not in context.state:
            return LocalHooks(finish=finish)
        anchor = context.head.at(context.broadcast)
        previous = context.head.at(context.state["params"])

        def loss_term(head, batch):
            near, far = (
                F.cosine_similarity(
                    batch.representation, frozen.represent(batch.features)
                )
                for frozen in (anchor, previous)
            )
            pairs = torch.stack([near, far], dim=1) / self.temperature
            first = torch.zeros_like(batch.labels)
            return self.mu * F.cross_entropy(pairs, first)

        return LocalHooks(loss_term=loss_term, finish=finish)


class FedNTD(FedAvg):
    """Distils the global model's view of the not-true classes (Lee et al., 2022)."""

    def __init__(self, beta, temperature=1.0):
        self.beta, self.temperature = beta, temperature

    def local(self, context):
        anchor, t = context.head.at(context.broadcast), self.temperature

        def others(logits, labels):
            true = F.one_hot(labels, logits.shape[1]).bool()
            kept = logits[~true].view(len(labels), -1)
            return (kept / t).log_softmax(dim=1)

        def loss_term(head, batch):
            ours = others(batch.logits, batch.labels)
            theirs = others(anchor(batch.features), batch.labels)
            divergence = F.kl_div(ours, theirs, reduction="batchmean", log_target=True)
            return self.beta * t**2 * divergence

        return LocalHooks(loss_term=loss_term)


class FedProto(FedAvg):
    """Representations near the global class means of them (Tan et al., 2022)."""

    def __init__(self, strength):
        self.strength = strength

    def upload_shapes(self, head):
        width = head.represent(torch.zeros(0, head.in_features)).shape[1]
        return {"means": (head.num_classes, width), "counts": (head.num_classes,)}

    def initial_state(self, params, context):
        shapes = self.upload_shapes(context.head)
        return {
            "prototypes": torch.zeros(shapes["means"]),
            "known": torch.zeros(shapes["counts"]),
        }

    def download(self, state):
        return state

    def local(self, context):
        prototypes, known = context.download["prototypes"], context.download["known"]

        def loss_term(head, batch):
            distance = batch.representation - prototypes[batch.labels]
            squares = distance.square().mean(dim=1) * known[batch.labels]
            return self.strength * squares.mean()

        def finish(outcome):
            z = context.head.at(outcome.params).represent(outcome.features)
            counts = torch.bincount(outcome.labels, minlength=len(context.counts))
            counts[context.counts < context.min_samples] = 0
            sums = torch.zeros_like(prototypes).index_add(0, outcome.labels, z)
            means = sums / counts.clamp(min=1)[:, None]
            return {"means": means * (counts > 0)[:, None], "counts": counts}, {}

        return LocalHooks(loss_term=loss_term, finish=finish)

    def step(self, params, updates, state, context):
        counts = torch.stack([u.upload["counts"] for u in updates])
        means = torch.stack([u.upload["means"] for u in updates])
        total = counts.sum(dim=0)
        mean = (counts[..., None] * means).sum(0) / total.clamp(min=1)[:, None]
        seen = total > 0
        prototypes = torch.where(seen[:, None], mean, state["prototypes"])
        known = torch.where(seen, torch.ones_like(state["known"]), state["known"])
        state = {"prototypes": prototypes, "known": known}
        return weighted_mean(params, updates), state


class FedOpt(FedAvg):
    """SGD with momentum on the server (Reddi et al., 2021)."""

    def __init__(self, rate, momentum=0.0):
        self.rate, self.momentum = rate, momentum

    def initial_state(self, params, context):
        return {"v": torch.zeros_like(params)}

    def step(self, params, updates, state, context):
        direction = weighted_mean(params, updates) - params
        v = self.momentum * state["v"] + direction
        return params + self.rate * v, {"v": v}


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
