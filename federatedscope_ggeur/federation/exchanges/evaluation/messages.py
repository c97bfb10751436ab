"""The scores that a client reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.evaluation.scores import Score
from federatedscope_ggeur.federation.wire.declared import SPLITS
from federatedscope_ggeur.federation.wire.schema import MessageSchema


@dataclass(frozen=True)
class ScoreReport:
    """A client's scores: counts, so that the server can add them up by domain.

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
        for split, score in self.scores.items():
            numbers.update({f"{split}_{k}": v for k, v in asdict(score).items()})
        return wire.pack("score", numbers, {})

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> ScoreReport:
        message = wire.unpack(data, "score", sender)
        message.only(())
        splits = message.texts("splits")
        if not set(splits) <= set(SPLITS):
            raise message.refuse("splits", f"{splits!r:.80} are not among {SPLITS}")
        scores = {}
        for split in splits:
            fields = (f"{split}_{name}" for name in ("correct", "total", "loss_sum"))
            right, rows, loss = fields
            score = Score(
                message.integer(right), message.integer(rows), message.number(loss)
            )
            if score.correct > score.total:
                raise message.refuse(right, f"{score.correct} of {score.total} rows")
            scores[split] = score
        return cls(message.client(), message.integer("round_number"), scores)
