"""FedMix (Yoon et al., 2021): mixup of own rows with means of other clients' rows."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from federatedscope_ggeur.settings import Key, below, whole

from .base import LocalContext, LocalHooks, Method
from .contexts import TensorSpec, value_problem
from .registry import register_augmentation


@register_augmentation("fedmix")
class FedMix(Method):
    """Mixes rows with means of the clients' rows by a Taylor expansion (MAFL).

    The loss of a batch is ``(1-m) CE(f((1-m) x), y) + m CE(f((1-m) x), ybar) + m
    mean_i(g_i . xbar)`` with ``g_i = d CE_i / dx`` at ((1-m) x_i, y_i). (xbar, ybar) is
    one of the means of embeddings and one-hot labels that the clients sent in round 0,
    drawn anew for every batch. Autograd computes second derivatives of the model.
    Without any means the loss is the cross-entropy. With dropout, a loss term of a base
    method draws its own units.

    A client divides its rows at random into groups, and sends one mean for each group.
    A group has at least `batch_size` rows, and at least `min_samples`. The remaining
    rows join these groups: otherwise the sum over all rows minus the means would reveal
    them. Only classes with fewer than `min_samples` rows are in no mean.

    m is `weight`. With 0 the method is FedAvg up to rounding.
    """

    meaning = "mixes rows with means of the clients' rows, by a Taylor expansion"
    source = "Yoon 2021 (MAFL)"
    sends = (
        "in round 0: means of small batches of embeddings and of their one-hot labels, "
        "D + C numbers each"
    )
    receives = "all clients' means, once"
    sends_row_means = True
    SETTINGS = (
        Key("weight", 0.05, "Share of other clients' means in a mixed row.", below(1)),
        Key(
            "batch_size",
            5,
            "Number of rows in each mean that a client sends; at least "
            "privacy.min_samples.",
            whole(1),
        ),
    )

    weight: float
    batch_size: int

    def init_upload_shapes(self, model):
        return {"means": TensorSpec((None, model.in_features + model.num_classes))}

    def init_upload_problem(self, init_upload, model):
        x, y = init_upload["means"].split([model.in_features, model.num_classes], dim=1)
        if (y < 0).any() or ((y.sum(dim=1) - 1).abs() > 1e-3).any():
            return "'means' of labels must lie in 0..1 and sum to 1 in every row"
        return value_problem("'means' of embeddings", x)

    def init_upload(self, features, labels, context):
        size = max(self.batch_size, context.min_samples)
        allowed = context.told
        rows = allowed[labels].nonzero().flatten()
        generator = context.generator("fedmix")
        order = rows[torch.randperm(len(rows), generator=generator)]
        groups = len(order) // size
        model = context.model
        if not groups:
            return {"means": torch.zeros(0, model.in_features + model.num_classes)}

        def mean(rows: torch.Tensor) -> torch.Tensor:
            # One group at a time, because prepared pixels are four times as large.
            x = model.prepare(features[rows])
            hot = F.one_hot(labels[rows], model.num_classes)
            return torch.cat([x, hot.to(x.dtype)], dim=1).mean(dim=0)

        parts = order.tensor_split(groups)
        return {"means": torch.stack([mean(rows) for rows in parts])}

    def aggregate_init(self, init_uploads):
        return {"means": torch.cat([own["means"] for own in init_uploads.values()])}

    def local(self, context: LocalContext) -> LocalHooks:
        m, model = self.weight, context.model
        means = context.init_broadcast["means"]
        if not len(means):
            return LocalHooks()
        mean_x, mean_y = means.split([model.in_features, model.num_classes], dim=1)
        generator = context.generator("fedmix")

        def objective(model, features, labels):
            row = torch.randint(len(means), (), generator=generator)
            x = ((1 - m) * features).requires_grad_(True)
            logits = model(x)
            losses = F.cross_entropy(logits, labels, reduction="none")
            # Summed, so that each row of g is the gradient of its own loss.
            (g,) = torch.autograd.grad(losses.sum(), x, create_graph=True)
            other = F.cross_entropy(logits, mean_y[row].expand_as(logits))
            slope = (g @ mean_x[row]).mean()
            return (1 - m) * losses.mean() + m * other + m * slope

        return LocalHooks(objective=objective)
