"""The message of round 0 that carries a client's class statistics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire import Contract
from federatedscope_ggeur.geometry import ClassStatistics

F32, I64 = torch.float32, torch.int64


@dataclass(frozen=True)
class StatisticsUpload:
    """Round 0, up: a client's class statistics, after the min-count floor.

    A covariance travels exactly (in float32), as the thin factor or as the upper
    triangle, whichever is smaller. Means travel in float64: what rounding takes from a
    mean, the merge would multiply by its distance from the origin.
    """

    client: int
    domain: str
    statistics: ClassStatistics

    def to_bytes(self) -> bytes:
        statistics, classes = self.statistics, self.statistics.classes
        dim = statistics.dim
        index = torch.tensor(classes, dtype=I64)
        upper = torch.triu_indices(dim, dim)
        factors, triangles, ranks = [torch.zeros(0, dim)], [], []
        for c in classes:
            if statistics.factor_is_smaller(c):
                factors.append(statistics.factor(c).to(F32))
                ranks.append(len(factors[-1]))
            else:
                triangle = statistics.covariance(c)[upper[0], upper[1]]
                triangles.append(triangle.to(F32))
                ranks.append(-1)
        tensors = {
            "classes": index,
            "counts": statistics.counts[index],
            "means": statistics.means[index],
            "ranks": torch.tensor(ranks, dtype=I64),
            "factors": torch.cat(factors),
            "triangles": torch.stack(triangles)
            if triangles
            else torch.zeros(0, upper.shape[1]),
        }
        numbers = {"client": self.client, "domain": self.domain}
        return wire.pack("statistics", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, contract: Contract, sender: str
    ) -> StatisticsUpload:
        message = wire.unpack(data, "statistics", sender)
        dim, num_classes = contract.dim, contract.num_classes
        labels = message.labels("classes", num_classes, distinct=True)
        k = len(labels)
        counts = message.tensor("counts", I64, (k,))
        if ((counts <= 0) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"counts must lie in 1..{wire.LARGEST}")
        means = message.tensor("means", torch.float64, (k, dim))
        # Beyond it squares overflow; embeddings are float32 themselves.
        if (means.abs() > torch.finfo(F32).max).any():
            raise message.refuse("means", "means must lie within the float32 range")
        ranks = message.tensor("ranks", I64, (k,))
        factors, triangles = _take_covariances(message, ranks, counts, dim)
        all_counts = torch.zeros(num_classes, dtype=I64)
        all_means = torch.zeros(num_classes, dim, dtype=torch.float64)
        all_counts[labels], all_means[labels] = counts, means
        classes = labels.tolist()
        statistics = ClassStatistics.from_moments(
            all_counts,
            all_means,
            factors={classes[i]: factor for i, factor in factors.items()},
            covariances={classes[i]: sigma for i, sigma in triangles.items()},
        )
        return cls(message.client(), message.text("domain"), statistics)


def _take_covariances(message, ranks: Tensor, counts: Tensor, dim: int):
    """Factors and covariance matrices by position in the message's class list."""
    is_factor = ranks >= 0
    if (ranks < -1).any() or (ranks > (counts - 1).clamp(max=dim)).any():
        raise message.refuse("ranks", "a factor has at most n - 1 and at most D rows")
    if (~is_factor & (counts == 1)).any():
        raise message.refuse("ranks", "one sample has no covariance to send")
    factors = message.tensor("factors", F32, (int(ranks[is_factor].sum()), dim))
    size = dim * (dim + 1) // 2
    triangles = message.tensor("triangles", F32, (int((~is_factor).sum()), size))
    by_position = dict(
        zip(
            torch.nonzero(is_factor).flatten().tolist(),
            factors.split(ranks[is_factor].tolist()),
        )
    )
    matrices = {}
    upper = torch.triu_indices(dim, dim)
    positions = torch.nonzero(~is_factor).flatten().tolist()
    for position, triangle in zip(positions, triangles):
        sigma = torch.zeros(dim, dim, dtype=torch.float64)
        sigma[upper[0], upper[1]] = triangle.double()
        sigma = sigma + sigma.T - sigma.diag().diag()
        if not _is_positive_semidefinite(sigma):
            raise message.refuse(
                "triangles", "a covariance is not positive semi-definite"
            )
        matrices[position] = sigma
    return by_position, matrices


def _is_positive_semidefinite(sigma: Tensor) -> bool:
    """By one Cholesky of Sigma + eps I; eps covers rounding to float32."""
    diagonal = sigma.diag()
    if not sigma.any():
        return True
    eps = 1e-5 * diagonal.max().clamp(min=0)
    shifted = sigma + eps * torch.eye(len(sigma), dtype=sigma.dtype)
    return bool(torch.linalg.cholesky_ex(shifted).info == 0)
