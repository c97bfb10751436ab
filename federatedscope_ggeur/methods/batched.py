"""A method's hooks for several clients that train at once, see `Method.batched`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from federatedscope_ggeur.errors import PluginError

from .contexts import LinearCorrection, LocalHooks, LocalOutcome, Tensors

Finish = Callable[[LocalOutcome], tuple[Tensors, Tensors]]


class Heads(Protocol):
    """The heads of several clients, as a batched hook sees them.

    `weights` are of shape (A, P), or (1, P) for weights that all clients share.
    """

    def represent(self, weights: Tensor, features: Tensor) -> Tensor:
        """The representations [A, B, D'] of features [A, B, D]."""

    def logits(self, weights: Tensor, features: Tensor) -> Tensor:
        """The logits [A, B, C] of features [A, B, D], without dropout."""


@dataclass(frozen=True)
class GroupBatch:
    """One mini-batch of each of A clients, for a batched loss term.

    Attributes
    ----------
    features : Tensor of shape (A, B, D), float32
    labels : Tensor of shape (A, B), int64
    representation : Tensor of shape (A, B, D'), float32
    logits : Tensor of shape (A, B, C), float32
        As in `Batch`, with their gradients.
    share : Tensor of shape (A, B), float32
        One over the number of the client's rows in the batch; 0 for padded rows.
    """

    features: Tensor
    labels: Tensor
    representation: Tensor
    logits: Tensor
    share: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of `values` [A, B] over each client's rows: [A]."""
        return (values * self.share).sum(dim=1)


@dataclass(frozen=True)
class BatchedHooks:
    """`LocalHooks` for K clients that train at once.

    Clients that have taken all their steps leave the others. So a hook may be called
    for the first A of them: it takes the first A of its own tensors.

    Attributes
    ----------
    loss_term : callable (Heads, GroupBatch) -> Tensor of shape (A,)
        The term of each client. A client's term depends on its own weights alone.
    add_correction : LinearCorrection
        Its constant is of shape (K, P), or (1, P) for all clients.
    perturb : callable (params [A, P], gradient [A, P]) -> Tensor of shape (A, P)
    finish : sequence of callable or None, of length K
        Each client's own.
    start : Tensor of shape (K, P)
    """

    loss_term: Callable[[Heads, GroupBatch], Tensor] | None = None
    add_correction: LinearCorrection | None = None
    perturb: Callable[[Tensor, Tensor], Tensor] | None = None
    finish: Sequence[Finish | None] | None = None
    start: Tensor | None = None

    @property
    def runs_code(self) -> bool:
        """Whether a step calls functions of the method."""
        return not (self.loss_term is None and self.perturb is None)


def stacked(hooks: Sequence[LocalHooks], name: str) -> BatchedHooks:
    """The hooks of several clients as one.

    Corrections are stacked, and the first client's `perturb` serves all.

    Raises
    ------
    PluginError
        The method `name` says that it is batched, but its hooks cannot be stacked.
    """
    first = hooks[0]
    if first.change_steps:
        alone = (first.transform, first.objective, first.loss_term, first.stage)
        linear = [isinstance(h.add_correction, LinearCorrection) for h in hooks]
        corrects = first.add_correction is not None
        if any(one is not None for one in alone) or (corrects and not all(linear)):
            raise PluginError(
                f"the method '{name}' says that it is batched, but its hooks work on "
                "one client; give it local_batched, or LinearCorrection and perturb "
                "alone"
            )
    finish = [one.finish for one in hooks]
    starts = [one.start for one in hooks if one.start is not None]
    return BatchedHooks(
        add_correction=_stacked([one.add_correction for one in hooks]),
        perturb=first.perturb,
        finish=finish if any(finish) else None,
        start=torch.stack(starts) if starts else None,
    )


def _stacked(corrections: Sequence) -> LinearCorrection | None:
    if corrections[0] is None:
        return None
    constants = [one.constant for one in corrections]
    if all(constant is constants[0] for constant in constants):
        constants = constants[:1]
    return LinearCorrection(torch.stack(constants), corrections[0].alpha)
