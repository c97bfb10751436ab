"""Scores and bytes of a round, or of a head, as the records of results.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.reporting import HeadRecord, RoundRecord, average


@dataclass(frozen=True)
class Evaluation:
    """The scores of one head.

    Attributes
    ----------
    scores : mapping from domain to Score
    unseen : mapping from domain to Score, or None
        Of the unseen clients, where there are any; they count in no average.
    """

    scores: Mapping[str, Score]
    unseen: Mapping[str, Score] | None


@dataclass(frozen=True)
class Cost:
    """Seconds, and bytes from and to the clients."""

    seconds: float
    bytes_up: int
    bytes_down: int


def round_record(
    number: int, clients: list[int], evaluation: Evaluation | None, cost: Cost
) -> RoundRecord:
    """The record of a round; `evaluation` is None where it was not evaluated."""
    fields = dict.fromkeys(("accuracy", "avg", "std", "loss", "unseen_clients"))
    if evaluation is not None:
        fields = _fields(evaluation)
    return RoundRecord(round=number, clients=clients, **fields, **vars(cost))


def head_record(
    method: str, details: Mapping, evaluation: Evaluation, cost: Cost
) -> HeadRecord:
    """The record of a head in closed form, or a calibrated one."""
    return HeadRecord(method, dict(details), **_fields(evaluation), **vars(cost))


def _fields(evaluation: Evaluation) -> dict:
    scores, unseen = evaluation.scores, evaluation.unseen
    accuracy = _accuracy(scores)
    avg, std = average(accuracy)
    rows = sum(score.total for score in scores.values())
    loss = sum(score.loss_sum for score in scores.values()) / rows if rows else None
    return {
        "accuracy": accuracy,
        "avg": avg,
        "std": std,
        "loss": loss,
        "unseen_clients": None if unseen is None else _accuracy(unseen),
    }


def _accuracy(scores: Mapping[str, Score]) -> dict[str, float | None]:
    return {name: score.accuracy for name, score in scores.items()}
