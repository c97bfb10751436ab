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
#: Names of `Score.reliability` and `Score.of_sent` in a message.
_PLACES, _OF_SENT = ("0", "1"), "of_sent"


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
            described = {str(i): one for i, one in enumerate(score.reliability)}
            if score.of_sent is not None:
                described[_OF_SENT] = score.of_sent
            for name, one in described.items():
                tensors[f"{split}.{name}.bins"] = one.bins
                tensors[f"{split}.{name}.sums"] = one.sums
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
            total = message.integer(rows)
            found = [_reliability(message, f"{split}.{i}", total) for i in _PLACES]
            score = Score(
                message.integer(right),
                total,
                message.number(loss),
                tuple(one for one in found if one is not None),
                _reliability(message, f"{split}.{_OF_SENT}", total, at_most=True),
            )
            if score.of_sent is not None and not score.reliability:
                raise message.refuse(
                    f"{split}.{_OF_SENT}", "the probabilities of all rows are missing"
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
    places = [f"{split}.{place}" for place in (*_PLACES, _OF_SENT)]
    return [f"{place}.{name}" for place in places for name in ("bins", "sums")]


def _reliability(
    message: wire.Message, name: str, rows: int, at_most: bool = False
) -> Reliability | None:
    if not message.has(f"{name}.bins"):
        return None
    bins = message.tensor(f"{name}.bins", torch.int64, (3, BINS))
    sums = message.tensor(f"{name}.sums", torch.int64, (2,))
    found = int(bins[0].sum())
    if (bins < 0).any() or found > rows or (bins[1] > bins[0]).any():
        problem = f"the bins must add up to at most the {rows} rows of the split"
        raise message.refuse(f"{name}.bins", problem)
    if found < rows and not at_most:
        problem = f"the bins must add up to the {rows} rows of the split"
        raise message.refuse(f"{name}.bins", problem)
    if (sums < 0).any():
        raise message.refuse(f"{name}.sums", "sums of losses cannot be negative")
    return Reliability(bins, sums)
