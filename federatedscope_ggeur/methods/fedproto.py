"""FedProto (Tan et al., 2022): pull representations to their global class means."""

from __future__ import annotations

import torch

from federatedscope_ggeur.settings import Key, not_negative

from .base import BatchedHooks, LocalContext, LocalHooks, Method, weighted_mean
from .class_means import class_means
from .contexts import TensorSpec, count_problem, value_problem
from .registry import register_method


@register_method("fedproto")
class FedProto(Method):
    """FedAvg with a loss that pulls representations towards class prototypes.

    The loss gets the term ``strength * mean_i mean_d (z_id - P_{y_i, d})^2``.

    z is the representation (the logits of a linear head). A client sends the class
    means of z by its trained weights, for classes with at least `min_samples` own rows.
    P_c is the mean of these over the clients of the last round, weighted by counts.
    Rows of a class without P_c add 0, so the first round has no term. Weights are
    averaged as in FedAvg.

    `strength` is the paper's lambda. With 0 the method is FedAvg, to the bit.
    `strength` multiplies a mean over dimensions, not a sum, as in the authors' code.
    """

    meaning = "pulls representations to their global class means"
    source = "Tan 2022"
    sends = "class means of the representation, and counts"
    receives = "global class means, and which are known"
    SETTINGS = (
        Key(
            "strength",
            2.0,
            "Weight lambda of the squared distance to the prototypes, averaged over "
            "dimensions.",
            not_negative,
        ),
    )
    lower_if_diverging = ("strength",)

    strength: float

    def upload_shapes(self, model):
        classes = model.num_classes
        return {
            "means": TensorSpec((classes, model.width)),
            "counts": TensorSpec((classes,), torch.int64),
        }

    def upload_problem(self, upload, model):
        return count_problem("'counts'", upload["counts"]) or value_problem(
            "'means'", upload["means"]
        )

    def initial_state(self, params, context):
        shapes = self.upload_shapes(context.model)
        return {
            "prototypes": torch.zeros(shapes["means"].shape),
            "known": torch.zeros(shapes["counts"].shape),
        }

    def download(self, state):
        return state

    def local(self, context: LocalContext) -> LocalHooks:
        def finish(outcome):
            trained, labels = context.model.at(outcome.weights), outcome.labels
            wanted = context.told
            means = class_means(trained, outcome.features, labels, wanted)["means"]
            counts = torch.bincount(labels, minlength=len(wanted)) * wanted
            return {"means": means, "counts": counts}, {}

        return LocalHooks(loss_term=self._loss_term(context), finish=finish)

    def local_batched(self, contexts):
        alone = [self.local(context).finish for context in contexts]
        return BatchedHooks(loss_term=self._loss_term(contexts[0]), finish=alone)

    def _loss_term(self, context: LocalContext):
        """The term for a batch of one client, or of several; None without any P_c."""
        prototypes, known = context.download["prototypes"], context.download["known"]
        if not known.any():
            return None

        def loss_term(model, batch):
            difference = batch.representation - prototypes[batch.labels]
            squares = difference.square().mean(dim=-1) * known[batch.labels]
            return self.strength * batch.mean(squares)

        return loss_term

    def step(self, params, updates, state, context):
        counts = torch.stack([u.upload["counts"] for u in updates])
        means = torch.stack([u.upload["means"] for u in updates])
        total = counts.sum(dim=0)
        mean = (counts[..., None] * means).sum(0) / total.clamp(min=1)[:, None]
        seen = total > 0
        prototypes = torch.where(seen[:, None], mean, state["prototypes"])
        known = torch.where(seen, torch.ones_like(state["known"]), state["known"])
        kept = {"prototypes": prototypes, "known": known}
        return weighted_mean(params, updates), kept
