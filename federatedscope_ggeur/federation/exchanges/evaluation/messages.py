"""The message with a client's scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.declared import SPLITS
from federatedscope_ggeur.federation.wire.schema import MessageSchema

from .probabilities import BINS, Reliability
from .scores import Score

_FIELDS = ("correct", "total", "loss_sum")


@dataclass(frozen=True)
class ScoreReport:
    """A client's scores. They are counts, so that the server can add them by domain.

    Attributes
    ----------
    client, round_number : int
    scores : mapping from split ("train", "val" or "test") to Score
    """

    client: int
    round_number: int
    scores: Mapping[str, Score]

    def to_bytes(self) -> bytes:
        numbers = {
            "client": self.client,
            "round_number": self.round_number,
            "splits": list(self.scores),
        }
        tensors = {}
        for split, score in self.scores.items():
            numbers.update({f"{split}_{k}": getattr(score, k) for k in _FIELDS})
            for place, one in enumerate(score.reliability):
                tensors[f"{split}.{place}.bins"] = one.bins
                tensors[f"{split}.{place}.sums"] = one.sums
        return wire.pack("score", numbers, tensors)

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> ScoreReport:
        message = wire.unpack(data, "score", sender)
        splits = message.texts("splits")
        if not set(splits) <= set(SPLITS):
            raise message.refuse(
                "splits", f"expected some of {SPLITS}, got {splits!r:.80}"
            )
        message.only([name for split in splits for name in _tensors_of(split)])
        scores = {}
        for split in splits:
            right, rows, loss = (f"{split}_{name}" for name in _FIELDS)
            score = Score(
                message.integer(right),
                message.integer(rows),
                message.number(loss),
                _reliability(message, split, message.integer(rows)),
            )
            if score.correct > score.total:
                raise message.refuse(
                    right,
                    f"{score.correct} hits on {score.total} rows; hits cannot exceed "
                    "rows",
                )
            scores[split] = score
        return cls(message.client(), message.integer("round_number"), scores)


def _tensors_of(split: str) -> list[str]:
    places = [f"{split}.{place}" for place in range(2)]
    return [f"{place}.{name}" for place in places for name in ("bins", "sums")]


def _reliability(
    message: wire.Message, split: str, rows: int
) -> tuple[Reliability, ...]:
    found = []
    for place in range(2):
        name = f"{split}.{place}"
        if not message.has(f"{name}.bins"):
            break
        bins = message.tensor(f"{name}.bins", torch.int64, (3, BINS))
        sums = message.tensor(f"{name}.sums", torch.int64, (2,))
        if (bins < 0).any() or int(bins[0].sum()) != rows or (bins[1] > bins[0]).any():
            raise message.refuse(
                f"{name}.bins", f"the bins must add up to the {rows} rows of the split"
            )
        if (sums < 0).any():
            raise message.refuse(f"{name}.sums", "sums of losses cannot be negative")
        found.append(Reliability(bins, sums))
    return tuple(found)
