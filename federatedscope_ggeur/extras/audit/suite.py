"""Runs all attacks on a run, and gives the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .answers import a13
from .base import Attack, Clock, Finding, Transcript, Truth
from .class_rows import a1, a1b
from .head_updates import a4, a5
from .known_rows import a2, a3, a8, a10
from .lying_client import a11
from .subtractions import a9, s1, s2, s3, s4
from .told_numbers import a6, a7, a12

#: The levels of an audit, the weakest first.
LEVELS = ("rows", "membership", "dp")
#: The attacks by name, in the order of docs/privacy.md.
ATTACKS: dict[str, Attack] = {
    **{"A1": a1, "A1b": a1b, "A2": a2, "A3": a3, "A4": a4, "A5": a5, "A6": a6},
    **{"A7": a7, "A8": a8, "A9": a9, "A10": a10, "A11": a11, "A12": a12},
    "A13": a13,
    **{"S1": s1, "S2": s2, "S3": s3, "S4": s4},
}
#: The attacks that a client can run on its own messages.
SELF = ("A1", "A1b", "A2", "A4", "A7")


def audit_run(
    seen: Transcript,
    truth: Truth,
    seconds: float = 60.0,
    attacks: Iterable[str] = tuple(ATTACKS),
) -> list[Finding]:
    """Run each attack for at most `seconds`, and return the findings."""
    found = []
    for name in attacks:
        found += list(ATTACKS[name](seen, truth, Clock(seconds)))
    return found


def self_audit(
    seen: Transcript, truth: Truth, number: int, seconds: float = 60.0
) -> list[Finding]:
    """Run the server's attacks that need only the messages of client `number`."""
    only = replace(
        seen,
        uploads={k: u for k, u in seen.uploads.items() if k == number},
        replies={k: r for k, r in seen.replies.items() if k == number},
        updates={k: u for k, u in seen.updates.items() if k == number},
        summed=None,
    )
    own = replace(truth, clients={number: truth.clients[number]})
    return audit_run(only, own, seconds, SELF)


@dataclass(frozen=True)
class Verdict:
    """The verdict from all findings at one level, for one kind of adversary.

    Attributes
    ----------
    adversary : {"curious", "lying"}
    level : {"rows", "membership", "dp"}
    failed, passed, open, untried : tuple of str
        The names of attacks by result. Open attacks were tried, but had too few data to
        distinguish the result from chance. All other attacks had nothing to attack.
    """

    adversary: str
    level: str
    failed: tuple[str, ...]
    passed: tuple[str, ...]
    open: tuple[str, ...]
    untried: tuple[str, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding], level: str, adversary: str) -> Verdict:
        by: dict[str, list[str]] = {}
        for one in findings:
            if (one.level, one.adversary) == (level, adversary):
                by.setdefault(_outcome(one), []).append(one.attack)
        names = ("failed", "passed", "open", "untried")
        return cls(adversary, level, *(tuple(by.get(name, ())) for name in names))

    @property
    def outcome(self) -> str:
        """The verdict in a few words."""
        if self.failed:
            return "FAILED"
        if self.passed:
            return "passed"
        if self.open or self.untried:
            return "undecided"
        return "nothing to attack"


def _outcome(one: Finding) -> str:
    if one.passed is not None:
        return "passed" if one.passed else "failed"
    if one.tried is None:
        return "nothing"
    return "open" if one.tried else "untried"
