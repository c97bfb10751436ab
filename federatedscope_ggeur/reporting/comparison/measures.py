"""The numbers of one run that rows are compared by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from federatedscope_ggeur.reporting.records import RoundRecord
from federatedscope_ggeur.reporting.results import Results


@dataclass(frozen=True)
class Measure:
    """A number that a run has.

    Attributes
    ----------
    key : str
        ``accuracy``, ``avg`` and ``std`` are fractions in [0, 1], of the score of the
        run (`Final`); ``bytes_up`` and ``bytes_down`` are bytes a client, of all
        messages; ``seconds`` those of round 0 and all rounds.
    domain : str
        That ``accuracy`` is of; "" else.
    """

    key: str
    domain: str = ""

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return self.domain if self.key == "accuracy" else _TITLES[self.key]

    @property
    def is_score(self) -> bool:
        """Whether it is a fraction that tables show in percent."""
        return self.key in _SCORES

    @property
    def smallest_is_best(self) -> bool:
        """Whether less is better: of all but accuracies."""
        return self.key not in ("accuracy", "avg")

    def of(self, results: Results) -> float | None:
        """The number; None where the run has none."""
        if self.key == "accuracy":
            return results.final.accuracy.get(self.domain)
        return _NUMBERS[self.key](results)


def _senders(results: Results) -> int:
    """How many clients send, rows that are pooled among what they send."""
    return len(results.clients) if results.pooled is None else results.pooled.clients


def _a_client(total: int, results: Results) -> float | None:
    senders = _senders(results)
    return total / senders if senders else None


_SCORES = ("accuracy", "avg", "std")
_TITLES = {
    "avg": "AVG",
    "std": "STD",
    "bytes_up": "MB up a client",
    "bytes_down": "MB down a client",
    "seconds": "seconds",
}
_NUMBERS: dict[str, Callable[[Results], float | None]] = {
    "avg": lambda results: results.final.avg,
    "std": lambda results: results.final.std,
    "bytes_up": lambda results: _a_client(results.final.bytes_up, results),
    "bytes_down": lambda results: _a_client(results.final.bytes_down, results),
    "seconds": lambda results: results.final.seconds,
}
AVG, STD = Measure("avg"), Measure("std")
#: What a run costs.
COSTS = (Measure("bytes_up"), Measure("bytes_down"), Measure("seconds"))


def scored(results: Results) -> list[RoundRecord]:
    """Every state of the model that was scored, in order: the head in closed form as
    round 0, then the rounds that were evaluated."""
    heads = [results.closed_form] if results.closed_form is not None else []
    return heads + [record for record in results.rounds if record.evaluated]


def rounds_to(results: Results, target: float) -> int | None:
    """The first evaluated round whose AVG is at least `target`; None if none is.

    0 where the head in closed form is.
    """
    for record in scored(results):
        if record.avg is not None and record.avg >= target:
            return record.round
    return None


def bytes_so_far(results: Results) -> Iterator[tuple[RoundRecord, float]]:
    """Each state that was scored, with the bytes a client, up and down, until then."""
    clients = _senders(results) or 1
    total = 0 if results.pooled is None else results.pooled.bytes_up
    if results.round0 is not None:
        total += results.round0.bytes_up + results.round0.bytes_down
    heads = [results.closed_form] if results.closed_form is not None else []
    for record in [*heads, *results.rounds]:
        total += record.bytes_up + record.bytes_down
        if record.evaluated:
            yield record, total / clients
