"""The numbers of a run by which rows are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from federatedscope_ggeur.reporting.records import RoundRecord
from federatedscope_ggeur.reporting.results import Results


@dataclass(frozen=True)
class Measure:
    """One kind of number that each run has.

    Attributes
    ----------
    key : str
        The kind. ``accuracy``, ``avg`` and ``std`` are fractions in [0, 1] of the run's
        score (`Final`). ``bytes_up`` and ``bytes_down`` are bytes of all messages,
        divided by the number of clients. ``seconds`` is the time of round 0 and all
        rounds.
    domain : str
        The domain of ``accuracy``; else "".
    """

    key: str
    domain: str = ""

    @property
    def title(self) -> str:
        """The name of the measure in tables."""
        return self.domain if self.key == "accuracy" else _TITLES[self.key]

    @property
    def is_score(self) -> bool:
        """Whether the number is a fraction, which tables show in percent."""
        return self.key in _SCORES

    @property
    def smallest_is_best(self) -> bool:
        """Whether smaller is better, as for all measures except accuracies."""
        return self.key not in ("accuracy", "avg")

    def of(self, results: Results) -> float | None:
        """The number of a run; None if the run has none."""
        if self.key == "accuracy":
            return results.final.accuracy.get(self.domain)
        return _NUMBERS[self.key](results)


def _senders(results: Results) -> int:
    """The number of clients that send. Clients whose rows are pooled count."""
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
#: The measures of what a run costs.
COSTS = (Measure("bytes_up"), Measure("bytes_down"), Measure("seconds"))


def scored(results: Results) -> list[RoundRecord]:
    """The scored states of the model: the head in closed form, then evaluated rounds.

    The head in closed form counts as round 0.
    """
    heads = [results.closed_form] if results.closed_form is not None else []
    return heads + [record for record in results.rounds if record.evaluated]


def rounds_to(results: Results, target: float) -> int | None:
    """The first evaluated round whose AVG is at least `target`; None if there is none.

    0 stands for the head in closed form.
    """
    for record in scored(results):
        if record.avg is not None and record.avg >= target:
            return record.round
    return None


def bytes_so_far(results: Results) -> Iterator[tuple[RoundRecord, float]]:
    """Yield each scored state with the bytes that a client has sent and received so
    far."""
    clients = _senders(results) or 1
    total = 0 if results.pooled is None else results.pooled.bytes_up
    if results.round0 is not None:
        total += results.round0.bytes_up + results.round0.bytes_down
    heads = [results.closed_form] if results.closed_form is not None else []
    for record in [*heads, *results.rounds]:
        total += record.bytes_up + record.bytes_down
        if record.evaluated:
            yield record, total / clients
