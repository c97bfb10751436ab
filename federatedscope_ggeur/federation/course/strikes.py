"""Counts the faults of clients and bars those with too many."""

from __future__ import annotations

from collections import Counter

from federatedscope_ggeur.errors import setting

#: A client is barred after this number of refused or unasked messages.
STRIKES = 3
#: A client is barred after this number of missed deadlines in a run.
DEADLINES = 2


class Conduct:
    """Counts the faults of clients in a run, by client number.

    A client that joins again keeps its faults, unless `forgive` is called.

    Attributes
    ----------
    barred : dict from client number to the reason why the client is barred
    """

    def __init__(self) -> None:
        self._strikes: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()
        self.barred: dict[int, str] = {}

    def strike(self, number: int, what: str) -> str:
        """Count an invalid message of a client. Returns why it is barred, or ""."""
        self._strikes[number] += 1
        if self._strikes[number] < STRIKES:
            return ""
        return self.bar(
            number, f"barred after {STRIKES} invalid messages, the last one: {what}"
        )

    def miss(self, number: int, what: str) -> str:
        """Count a missed deadline of a client. Returns why it is barred, or ""."""
        self._missed[number] += 1
        if self._missed[number] < DEADLINES:
            return ""
        return self.bar(
            number,
            f"barred after {DEADLINES} missed deadlines, the last one: {what}; raise "
            f"{setting('deadline')} if the client needs longer",
        )

    def forgive(self, number: int) -> None:
        """Forget a client's faults: somebody else may use the number next."""
        del self._strikes[number], self._missed[number]
        self.barred.pop(number, None)

    def bar(self, number: int, reason: str) -> str:
        """Bar a client at once. Returns the reason."""
        return self.barred.setdefault(number, reason)
