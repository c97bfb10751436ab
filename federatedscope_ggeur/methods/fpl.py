"""FPL (Huang et al., CVPR 2023): pull representations to clusters of class means.

FINCH (Sarfraz et al., CVPR 2019): clusters without a given number or threshold.

FINCH joins every point to its nearest neighbour. The connected parts are the clusters.
It clusters their means in the same way, and so on.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.settings import Key, not_negative, positive

from .base import LocalContext, LocalHooks, Method, weighted_mean
from .class_means import class_means, class_means_problem, class_means_specs
from .registry import register_method


def finch(points: Tensor) -> Tensor:
    """The coarsest clusters of points [n, D] by cosine: cluster numbers [n], int64.

    The result is the last partition with several clusters, or else the first partition.
    Numbers follow the clusters' first points. Of equally near neighbours the first one
    counts.
    """
    if not len(points):
        return torch.zeros(0, dtype=torch.int64)
    parts = _neighbour_parts(points)
    while True:
        means = cluster_means(points, parts)
        coarser = _neighbour_parts(means)[parts]
        if _count(coarser) in (1, _count(parts)):
            return parts
        parts = coarser


def cluster_means(points: Tensor, clusters: Tensor) -> Tensor:
    """The mean of each cluster's points [n, D]: shape (number of clusters, D)."""
    count = _count(clusters)
    sums = points.new_zeros(count, points.shape[1]).index_add(0, clusters, points)
    sizes = torch.bincount(clusters, minlength=count)
    return sums / sizes[:, None]


def _neighbour_parts(points: Tensor) -> Tensor:
    """Connected parts of the nearest-neighbour graph, numbered by their first point."""
    n = len(points)
    part = torch.arange(n)
    if n > 1:
        u = F.normalize(points, dim=1)
        nearest = (u @ u.T).fill_diagonal_(-torch.inf).argmax(dim=1)
        for i, j in enumerate(nearest.tolist()):
            part[part == part[j]] = part[i].clone()
    first = dict.fromkeys(part.tolist())
    number = {p: k for k, p in enumerate(first)}
    return torch.tensor([number[p] for p in part.tolist()])


def _count(clusters: Tensor) -> int:
    return int(clusters.max()) + 1


@register_method("fpl")
class FPL(Method):
    """FedAvg with two more losses, which pull representations towards class prototypes.

    The loss gets the term ``strength * mean_i [ contrast_i + mean_d (z_id - U_{y_i,
    d})^2 ]``.

    ``contrast_i = -log sum_{a of y_i} e^{cos(z_i, P_a)/t} / sum_a e^{cos(z_i, P_a)/t}``
    over the cluster prototypes P_a of all classes. z is the representation (the logits
    of a linear head). The clients of the last round sent their class means of z, by
    their trained weights. For each class, FINCH clusters these means by cosine. The
    mean of a cluster is one P_a. The plain mean of a class's P_a is its unbiased
    prototype U_c. Neither P_a nor U_c is weighted by rows, so a domain with many
    clients or rows has no more weight.

    Rows of a class without prototypes add 0, so there is no term in the first round. If
    nobody sends a class in a round, its prototypes stay. A client sends nothing for a
    class of which it has fewer than `min_samples` own rows.

    t is `temperature`. It is 0.02 in the authors' code and 0.2 in the benchmark MarsFL.
    The authors' `strength` is 1. With 0 the method is FedAvg, to the bit.
    """

    meaning = (
        "pulls representations to clusters of the clients' class means, and to the "
        "mean of the clusters"
    )
    source = "Huang 2023 (FPL)"
    sends = "class means of the representation, and of which classes"
    receives = "cluster means of each class, their means, and which are known"
    SETTINGS = (
        Key("temperature", 0.02, "Temperature t of the contrastive loss.", positive),
        Key("strength", 1.0, "Weight of both loss terms.", not_negative),
    )
    lower_if_diverging = ("strength",)

    temperature: float
    strength: float

    def upload_shapes(self, model):
        return class_means_specs(model)

    def upload_problem(self, upload, model):
        return class_means_problem(upload)

    def initial_state(self, params, context):
        classes, width = context.model.num_classes, context.model.width
        return {
            "clusters": torch.zeros(0, width),
            "labels": torch.zeros(0, dtype=torch.int64),
            "unbiased": torch.zeros(classes, width),
            "known": torch.zeros(classes, dtype=torch.int64),
        }

    def download(self, state):
        return state

    def local(self, context: LocalContext) -> LocalHooks:
        down, known = context.download, context.download["known"] > 0

        def loss_term(model, batch):
            rows = known[batch.labels]
            z, y = batch.representation[rows], batch.labels[rows]
            if not len(y):
                return batch.representation.sum() * 0.0
            contrast = cluster_contrast(
                z, y, down["clusters"], down["labels"], self.temperature
            )
            apart = (z - down["unbiased"][y]).square().mean(dim=1)
            return self.strength * (contrast + apart).sum() / len(rows)

        def finish(outcome):
            wanted = context.told
            trained = context.model.at(outcome.weights)
            return class_means(trained, outcome.features, outcome.labels, wanted), {}

        return LocalHooks(loss_term=loss_term if known.any() else None, finish=finish)

    def step(self, params, updates, state, context):
        sent = torch.stack([u.upload["known"] for u in updates]) > 0
        means = torch.stack([u.upload["means"] for u in updates])
        known = torch.where(sent.any(dim=0), 1, state["known"])
        clusters, unbiased = {}, state["unbiased"].clone()
        for c in known.nonzero().flatten().tolist():
            if sent[:, c].any():
                points = means[sent[:, c], c]
                clusters[c] = cluster_means(points, finch(points))
                unbiased[c] = clusters[c].mean(dim=0)
            else:
                clusters[c] = state["clusters"][state["labels"] == c]
        each = [torch.full((len(own),), c) for c, own in clusters.items()]
        kept = {
            "clusters": torch.cat([state["clusters"][:0], *clusters.values()]),
            "labels": torch.cat([state["labels"][:0], *each]),
            "unbiased": unbiased,
            "known": known,
        }
        return weighted_mean(params, updates), kept


def cluster_contrast(
    z: Tensor, labels: Tensor, clusters: Tensor, of_class: Tensor, temperature: float
) -> Tensor:
    """The contrastive loss of each row: low if clusters of its class are nearest.

    Parameters
    ----------
    z : Tensor of shape (n, D')
    labels : Tensor of shape (n,)
        The classes of the rows. Each must have a cluster.
    clusters, of_class : Tensor of shape (M, D') and (M,)
        The means of the clusters, and the class of each cluster.
    temperature : float

    Returns
    -------
    Tensor of shape (n,)
        ``-log sum_{a: of_class_a = y_i} e^{cos(z_i, P_a)/t} / sum_a e^{cos/t}``.
    """
    cosine = F.normalize(z, dim=1) @ F.normalize(clusters, dim=1).T / temperature
    own = of_class == labels[:, None]
    near = cosine.masked_fill(~own, -torch.inf).logsumexp(dim=1)
    return cosine.logsumexp(dim=1) - near
