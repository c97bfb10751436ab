"""A round's scores and bytes as the record that results.json holds."""

from __future__ import annotations

from collections.abc import Mapping

from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.reporting import RoundRecord, average


def round_record(
    number: int,
    clients: list[int],
    scores: Mapping[str, Score] | None,
    unseen: Mapping[str, Score] | None,
    seconds: float,
    bytes_up: int,
    bytes_down: int,
) -> RoundRecord:
    """The record of a round; `scores` by domain, None where it was not evaluated.

    `unseen` are scores of unseen clients by domain; they count in no average.
    """
    accuracy, avg, std, loss = None, None, None, None
    if scores is not None:
        accuracy = _accuracy(scores)
        avg, std = average(accuracy)
        rows = sum(score.total for score in scores.values())
        loss = sum(score.loss_sum for score in scores.values()) / rows if rows else None
    return RoundRecord(
        round=number,
        clients=clients,
        accuracy=accuracy,
        avg=avg,
        std=std,
        loss=loss,
        seconds=seconds,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        unseen_clients=None if unseen is None else _accuracy(unseen),
    )


def _accuracy(scores: Mapping[str, Score]) -> dict[str, float | None]:
    return {name: score.accuracy for name, score in scores.items()}
