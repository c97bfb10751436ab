"""What all sides of a federation must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from federatedscope_ggeur.errors import GGEURError, MessageError, setting
from federatedscope_ggeur.federation.wire.handshake import Handshake


class Agreement:
    """The handshake that counts, and the clients that sent another one.

    If the server holds data, its own handshake counts. If not, the clients decide by
    majority. A handshake counts as soon as more than half of all clients have sent it,
    or, when the wait for clients is over, if most of the connected ones have. The first
    client does not decide alone.

    Parameters
    ----------
    clients : int
        How many clients may join.
    settings : mapping
        The server's own.
    handshake : Handshake, optional
        The server's own, if it holds data.
    given : mapping, optional
        Fields of a `Handshake` that the server's settings fix: dim, class_names,
        encoder.

    Attributes
    ----------
    handshake : Handshake or None
        The one that counts; None until it is settled.
    """

    def __init__(
        self,
        clients: int,
        settings: Mapping[str, str],
        handshake: Handshake | None = None,
        given: Mapping[str, Any] | None = None,
    ):
        self._clients, self._settings = clients, settings
        self._given = dict(given or {})
        self._is_servers, self.handshake = handshake is not None, handshake
        self._said: dict[int, Handshake] = {}
        self._closed = False

    @property
    def known(self) -> dict[str, Any]:
        """The fields of a handshake that are settled."""
        known = {"settings": self._settings, **self._given}
        if self.handshake is not None:
            known = vars(self.handshake)
        return {name: value for name, value in known.items() if value != ""}

    def check(self, theirs: Handshake, sender: str) -> None:
        """Raise `MessageError` if `theirs` differs from the handshake that counts."""
        mine = self.handshake
        by = "most clients" if mine and not self._is_servers else "the server"
        if mine is None:
            mine = replace(theirs, settings=self._settings, **self._given)
        difference = mine.difference(theirs)
        if difference:
            raise MessageError(
                f"{difference} (at {by}); all sides must have it alike",
                field="handshake",
                sender=sender,
            )

    def note(self, number: int, theirs: Handshake) -> dict[int, MessageError]:
        """Note that a client has joined with `theirs`.

        Returns the refusals of earlier clients that do not fit, once the handshake is
        settled.
        """
        if self._is_servers:
            return {}
        self._said[number] = theirs
        if self.handshake is None:
            first = self._sides()[0]
            if 2 * len(first) > self._clients:
                self.handshake = self._said[first[0]]
        return self._misfits()

    def forget(self, number: int) -> None:
        """Forget a client that left before the run; the majority may change."""
        if self._said.pop(number, None) is not None and not self._closed:
            first = [*self._sides(), []][0]
            if 2 * len(first) <= self._clients:
                self.handshake = None

    def close(self, quorum: int) -> dict[int, MessageError]:
        """Settle the handshake when the wait is over; `quorum` clients must agree.

        Returns the refusals of the other clients.

        Raises
        ------
        GGEURError
            No handshake has so many clients.
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
        """Whether all clients have joined and no majority agrees."""
        return self.handshake is None and len(self._said) >= self._clients

    def _sides(self) -> list[list[int]]:
        """The groups of clients with equal handshakes, the largest first; of equal ones
        the group with the lowest client number.
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
            f"the clients differ in what their data are, and {setting('quorum')} asks "
            f"for {quorum} that agree: {'; '.join(said)}"
        )
