"""The class means that the server hands on: the anchors of step 2."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from federatedscope_ggeur.federation.messages import Prototypes
from federatedscope_ggeur.federation.messages.statistics_upload import Statistics
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.geometry.moments import Means


class PrototypeBook:
    """Class means by source, a source being a domain or a single client.

    Parameters
    ----------
    client_domains : mapping from client number to domain
    kind : {"domain", "client"}
        One prototype for a class and domain, its clients merged, or for each client.
    """

    def __init__(self, client_domains: Mapping[int, str], kind: str):
        self._source = {
            k: d if kind == "domain" else k for k, d in client_domains.items()
        }
        self._means: dict[str | int, Means] = {}

    def add(self, client: int, statistics: Statistics) -> None:
        """Merge a client's class means into those of its source."""
        source = self._source[client]
        means = Means.rounded(statistics.counts, statistics.means)
        if source in self._means:
            means, _ = self._means[source].plus(means)
        self._means[source] = means

    def around(self, client: int, space: Space) -> Prototypes:
        """The means, in `space`, of all sources but the client's own, in order of
        their clients."""
        own = self._source[client]
        others = [
            self._means[source]
            for source in dict.fromkeys(self._source.values())
            if source != own and source in self._means
        ]
        classes = [torch.nonzero(held.counts).flatten() for held in others]
        means = [held.high[c] for held, c in zip(others, classes)]
        dim = next((m.high.shape[1] for m in self._means.values()), 0)
        return Prototypes(
            torch.cat([torch.zeros(0, dtype=torch.int64), *classes]),
            space.features(torch.cat([torch.zeros(0, dim), *means])).to(torch.float32),
        )

    def tensors(self) -> dict[str, Tensor]:
        """All that the book holds, by names that `load` understands."""
        first = {source: k for k, source in reversed(self._source.items())}
        held = {first[source]: means for source, means in self._means.items()}
        counts = {f"{k}.counts": means.counts for k, means in held.items()}
        return {**counts, **{f"{k}.means": means.high for k, means in held.items()}}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` of a book of the same clients gave."""
        for name in tensors:
            k, _, part = name.partition(".")
            if part == "counts":
                means = Means.rounded(tensors[name], tensors[f"{k}.means"])
                self._means[self._source[int(k)]] = means
