"""The messages at the end of round 0: geometry, prototypes, and replies.

The class means that the server passes on to clients, as anchors of step 2.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.client import MOST_HELD_OUT
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import GeometricShape, Space, Statistics

F32, I64 = torch.float32, torch.int64


class Geometry(wire.Payload, kind="geometry"):
    """Round 0, server to all clients: the global shape of each class.

    Attributes
    ----------
    shapes : mapping from class to GeometricShape
    pooled : bool
        Whether all classes share one shape, which travels once.
    """

    shapes: Mapping[int, GeometricShape]
    pooled: bool = False

    def write(self) -> wire.Content:
        classes = sorted(self.shapes)
        shapes = [self.shapes[c] for c in classes[: 1 if self.pooled else None]]
        dim = shapes[0].dim if shapes else 0
        empty = torch.zeros(0, dim)
        tensors = {
            "classes": torch.tensor(classes, dtype=I64),
            "ranks": torch.tensor([s.rank for s in shapes], dtype=I64),
            "eigenvalues": torch.cat(
                [torch.zeros(0).double(), *(s.eigenvalues.double() for s in shapes)]
            ),
            "eigenvectors": torch.cat(
                [empty, *(s.eigenvectors.T.to(F32) for s in shapes)]
            ),
        }
        return {}, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> Geometry:
        labels = message.labels("classes", schema.num_classes, distinct=True)
        dim = schema.dim if len(labels) else 0
        distinct = min(1, len(labels)) if schema.pooled_geometry else len(labels)
        ranks = message.tensor("ranks", I64, (distinct,), (0, dim))
        total = int(ranks.sum())
        values = message.tensor("eigenvalues", torch.float64, (total,))
        if (values <= 0).any():
            raise message.refuse("eigenvalues", "eigenvalues must be positive")
        vectors = message.tensor("eigenvectors", F32, (total, dim))
        if ((vectors.norm(dim=1) - 1).abs() > 1e-3).any():
            raise message.refuse("eigenvectors", "each eigenvector must have length 1")
        parts = zip(values.split(ranks.tolist()), vectors.split(ranks.tolist()))
        shapes = [GeometricShape(v, e.T) for v, e in parts]
        if schema.pooled_geometry:
            shapes = shapes * len(labels)
        return cls(dict(zip(labels.tolist(), shapes)), schema.pooled_geometry)


class Prototypes(wire.Payload, kind="prototypes"):
    """Round 0, server to one client: class means of other domains or clients.

    Attributes
    ----------
    labels : Tensor of shape (P,), int64
    prototypes : Tensor of shape (P, D), float32
    counts : Tensor of shape (P,), int64, or None
        With summed statistics, the prototypes are raw class means over all clients, and
        these are the numbers of rows behind them. Otherwise None.
    """

    labels: Tensor = wire.labels(distinct=lambda schema: schema.counted_prototypes)
    prototypes: Tensor = wire.tensor(F32, ("labels", "dim"))
    counts: Tensor | None = wire.tensor(
        I64,
        ("labels",),
        (1, wire.LARGEST),
        when=lambda schema: schema.counted_prototypes,
        default=None,
    )


class PrepareReply(wire.Payload, kind="prepare_reply"):
    """Round 0, client to server: the aggregation weight, and the method's tensors."""

    client: int = wire.client()
    aggregation_weight: float = wire.number(wire.LARGEST)
    init_upload: Mapping[str, Tensor] = wire.tensors(default_factory=dict)


class HeldOut(wire.Payload, kind="held_out"):
    """Round 0, server to all clients: the share of training rows to hold out.

    Clients do not train on these rows; they give the trained head its temperature, and
    the two heads of a mean their shares.
    """

    share: float = wire.number(MOST_HELD_OUT)


class InitBroadcast(wire.Payload, kind="init_broadcast"):
    """Round 0, server to all clients: the method's message."""

    tensors: Mapping[str, Tensor] = wire.tensors(name="init_broadcast")


#: stands in tensor names in place of a client's number
_ALL = "all"


class PrototypeBook:
    """Class means by source, which is a domain or a single client.

    Parameters
    ----------
    client_domains : mapping from client number to domain
    kind : {"domain", "client", "others"}
        Prototypes for each class and domain, or for each class and client. With
        "others" there is one for each class over all clients, and each client subtracts
        its own rows.
    """

    def __init__(self, client_domains: Mapping[int, str], kind: str):
        self._domains, self._kind = client_domains, kind
        self._means: dict[str | int, Statistics] = {}
        #: The smallest client number whose means each source has.
        self._first: dict[str | int, int] = {}
        self._of_all: Statistics | None = None

    def _source(self, client: int) -> str | int:
        """The source of a client.

        A client's domain may change until it has sent statistics.
        """
        return self._domains[client] if self._kind == "domain" else client

    def take(self, statistics: Statistics) -> None:
        """Take the class means over all clients, for the kind "others"."""
        self._of_all = statistics.to("means")

    def add(self, client: int, statistics: Statistics) -> None:
        """Merge a client's class means into those of its source."""
        source = self._source(client)
        self._means[source] = self._means.get(source, 0) + statistics.to("means")
        self._first[source] = min(client, self._first.get(source, client))

    def around(self, client: int, space: Space) -> Prototypes:
        """The class means of all sources but the client's own, in `space`.

        They are in client order. For "others" they are the raw means over all clients,
        with counts.
        """
        if self._of_all is not None:
            known = torch.nonzero(self._of_all.counts).flatten()
            raw = self._of_all.means[known].to(torch.float32)
            return Prototypes(known, raw, self._of_all.counts[known])
        own = self._source(client)
        ordered = sorted(self._means, key=self._first.__getitem__)
        others = [self._means[source] for source in ordered if source != own]
        classes = [torch.nonzero(held.counts).flatten() for held in others]
        means = [held.means[c] for held, c in zip(others, classes)]
        dim = next((held.dim for held in self._means.values()), 0)
        return Prototypes(
            torch.cat([torch.zeros(0, dtype=torch.int64), *classes]),
            space.features(torch.cat([torch.zeros(0, dim), *means])).to(torch.float32),
        )

    def tensors(self) -> dict[str, Tensor]:
        """All content of the book as tensors, which `load` can read."""
        if self._of_all is not None:
            return {
                f"{_ALL}.counts": self._of_all.counts,
                f"{_ALL}.means": self._of_all.means,
            }
        held = {self._first[source]: means for source, means in self._means.items()}
        counts = {f"{k}.counts": means.counts for k, means in held.items()}
        return {**counts, **{f"{k}.means": one.means for k, one in held.items()}}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the content from the `tensors` of a book of the same clients."""
        for name in tensors:
            k, _, part = name.partition(".")
            if part == "counts":
                means = Statistics.of_means(tensors[name], tensors[f"{k}.means"])
                if k == _ALL:
                    self._of_all = means
                else:
                    source = self._source(int(k))
                    self._means[source], self._first[source] = means, int(k)


def of_the_others(
    prototypes: Prototypes, features: Tensor, labels: Tensor, space: Space
) -> Prototypes:
    """The class means over all other clients, in `space`.

    A class has the mean mu of N rows over all clients, and this client holds n of the
    rows. The result is ``(N mu - sum x) / (N - n)``, with the sum over these n rows.

    Parameters
    ----------
    prototypes : Prototypes
        The raw means over all clients, with counts N.
    features : Tensor of shape (n, D)
        The client's own raw rows.
    labels : Tensor of shape (n,)
    space : Space

    Returns
    -------
    Prototypes
        They lack the classes that only this client holds.

    Raises
    ------
    MessageError
        A count N is smaller than the client's own number of rows of the class.
    """
    assert prototypes.counts is not None, "means over all clients must come with counts"
    kept, means = [], []
    pairs = zip(prototypes.labels.tolist(), prototypes.counts.tolist())
    for (c, count), mean in zip(pairs, prototypes.prototypes.double()):
        own = features[labels == c].double()
        rest = count - len(own)
        if rest < 0:
            raise MessageError(
                f"class {c} has fewer rows than this client alone holds",
                field="counts",
                sender="the server",
            )
        if rest:
            kept.append(c)
            means.append((count * mean - own.sum(dim=0)) / rest)
    others = torch.stack(means) if means else torch.zeros(0, features.shape[1])
    return Prototypes(
        torch.tensor(kept, dtype=torch.int64), space.features(others).to(torch.float32)
    )
