"""Finds the handshake on which all sides of a federation agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from federatedscope_ggeur.errors import GGEURError, MessageError, setting

from ..wire.handshake import Handshake


class Agreement:
    """Finds the valid handshake, and the clients that sent a different one.

    If the server holds data, its own handshake is valid. If not, the clients decide by
    majority. A handshake is valid as soon as more than half of all clients have sent
    it. If the wait for clients ends before that, the handshake of the largest group is
    valid. So the first client does not decide alone.

    Parameters
    ----------
    clients : int
        How many clients may join.
    settings : mapping
        The server's own settings.
    handshake : Handshake, optional
        The server's own handshake, if the server holds data.
    given : mapping, optional
        Fields of a `Handshake` that the server's settings fix: dim, class_names,
        encoder.

    Attributes
    ----------
    clients : int
        It may change before the run.
    handshake : Handshake or None
        The valid handshake; None until it is settled.
    """

    def __init__(
        self,
        clients: int,
        settings: Mapping[str, str],
        handshake: Handshake | None = None,
        given: Mapping[str, Any] | None = None,
    ):
        self.clients, self._settings = clients, settings
        self._given = dict(given or {})
        self._is_servers, self.handshake = handshake is not None, handshake
        self._said: dict[int, Handshake] = {}
        self._closed = False

    @property
    def known(self) -> dict[str, Any]:
        """The fields of the handshake that are settled already, by name."""
        known = {"settings": self._settings, **self._given}
        if self.handshake is not None:
            known = vars(self.handshake)
        return {name: value for name, value in known.items() if value != ""}

    def check(self, theirs: Handshake, sender: str) -> None:
        """Raise `MessageError` if `theirs` differs from the valid handshake."""
        mine = self.handshake
        by = "most clients" if mine and not self._is_servers else "the server"
        if mine is None:
            mine = replace(theirs, settings=self._settings, **self._given)
        difference = mine.difference(theirs)
        if difference:
            raise MessageError(
                f"{difference} (at {by}); this must be the same on all sides",
                field="handshake",
                sender=sender,
            )

    def note(self, number: int, theirs: Handshake) -> dict[int, MessageError]:
        """Note that a client has joined with the handshake `theirs`.

        Once the valid handshake is settled, this returns the refusals of clients whose
        handshake differs.
        """
        if self._is_servers:
            return {}
        self._said[number] = theirs
        if self.handshake is None:
            first = self._sides()[0]
            if 2 * len(first) > self.clients:
                self.handshake = self._said[first[0]]
        return self._misfits()

    def forget(self, number: int) -> None:
        """Forget a client that left before the run. The majority may change by this."""
        if self._said.pop(number, None) is not None and not self._closed:
            first = [*self._sides(), []][0]
            if 2 * len(first) <= self.clients:
                self.handshake = None

    def close(self, quorum: int) -> dict[int, MessageError]:
        """Settle the handshake when the wait is over; `quorum` clients must agree.

        Returns the refusals of the clients whose handshake differs.

        Raises
        ------
        GGEURError
            Fewer than `quorum` clients agree, or two groups are equally large.
        """
        if self.handshake is None:
            sides = self._sides()
            first = sides[0] if sides else []
            is_tied = len(sides) > 1 and len(sides[1]) == len(first)
            if len(first) < quorum or is_tied:
                raise GGEURError(f"joining: {self._disagreement(quorum)}")
            self.handshake = self._said[first[0]]
        self._closed = True
        return self._misfits()

    @property
    def is_hopeless(self) -> bool:
        """Whether all clients have joined without any majority."""
        return self.handshake is None and len(self._said) >= self.clients

    def _sides(self) -> list[list[int]]:
        """The groups of clients with equal handshakes, the largest first.

        Of equally large groups, the one with the lowest client number comes first.
        """
        sides: dict[str, list[int]] = {}
        for k in sorted(self._said):
            sides.setdefault(repr(self._said[k].numbers()), []).append(k)
        return sorted(sides.values(), key=lambda side: (-len(side), side[0]))

    def _misfits(self) -> dict[int, MessageError]:
        found: dict[int, MessageError] = {}
        for k, theirs in self._said.items():
            try:
                if self.handshake is not None:
                    self.check(theirs, f"client {k}")
            except MessageError as error:
                found[k] = error
        return found

    def _disagreement(self, quorum: int) -> str:
        first, *others = self._sides()
        said = [f"clients {first} agree"]
        for side in others[:3]:
            difference = self._said[first[0]].difference(self._said[side[0]])
            said.append(f"clients {side}: {difference}")
        return (
            f"the clients describe their data differently, and {setting('quorum')} "
            f"needs {quorum} clients that agree; correct the data, or lower "
            f"{setting('quorum')}: {'; '.join(said)}"
        )
