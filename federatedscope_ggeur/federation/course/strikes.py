"""What clients did that they should not, and who is put out of the run for it."""

from __future__ import annotations

from collections import Counter

from federatedscope_ggeur.errors import setting

#: So many messages that are refused or that nobody asked for, and a client is out.
STRIKES = 3
#: So many deadlines may pass for one client in a whole run.
DEADLINES = 2


class Conduct:
    """Counts over a whole run, by client's number: joining again forgives nothing,
    unless `forgive` is called.

    Attributes
    ----------
    barred : dict from client number to the reason why it takes no further part
    """

    def __init__(self) -> None:
        self._strikes: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()
        self.barred: dict[int, str] = {}

    def strike(self, number: int, what: str) -> str:
        """A client sent what it should not; why it is put out for that, or ""."""
        self._strikes[number] += 1
        if self._strikes[number] < STRIKES:
            return ""
        return self.bar(number, f"put out after {STRIKES} messages, the last: {what}")

    def miss(self, number: int, what: str) -> str:
        """A client let a deadline pass; why it is put out for that, or ""."""
        self._missed[number] += 1
        if self._missed[number] < DEADLINES:
            return ""
        return self.bar(
            number,
            f"put out after {DEADLINES} missed deadlines, the last: {what}; raise "
            f"{setting('deadline')} if it needs longer",
        )

    def forgive(self, number: int) -> None:
        """Forget all: who comes under this number next may be somebody else."""
        del self._strikes[number], self._missed[number]
        self.barred.pop(number, None)

    def bar(self, number: int, reason: str) -> str:
        """Put a client out at once; the reason."""
        return self.barred.setdefault(number, reason)
