"""Which clients are there, which have gone, and whether enough are left."""

from __future__ import annotations

from collections.abc import Collection

from federatedscope_ggeur.errors import GGEURError, MessageError


class Membership:
    """Who is there, of the clients of one federation.

    Parameters
    ----------
    roster : collection of int
        All clients.
    participants : collection of int
        Those that train.
    quorum : int
        How many must be there.

    Attributes
    ----------
    absent : dict from client number to the reason why it is not there
    """

    def __init__(
        self,
        client_domains: Collection[int],
        participants: Collection[int],
        quorum: int,
    ):
        self._client_domains, self._participants, self._quorum = (
            client_domains,
            participants,
            quorum,
        )
        self.absent: dict[int, str] = {}
        self._prepared: set[int] = set()
        # Since the last request: whose connection was lost, and who is there again.
        self._lost: set[int] = set()
        self._back: set[int] = set()
        self._refusal: MessageError | None = None

    def leave(self, number: int, reason: str, connected: bool = False) -> None:
        """A client is asked for nothing until it comes back.

        One that is still connected, and only late, keeps what round 0 sent.
        """
        self.absent.setdefault(number, reason)
        self._back.discard(number)
        if not connected:
            self._prepared.discard(number)
            self._lost.add(number)

    def come_back(self, number: int) -> None:
        """A client is there again; it is prepared anew if its connection was lost."""
        self.absent.pop(number, None)
        self._back.add(number)

    def check_quorum(self, when: str) -> None:
        """Raise `GGEURError`, naming who is missing, if too few clients are there.

        One that trains must be among them: unseen clients alone end no round.
        """
        client_domains, quorum = self._client_domains, self._quorum
        there = len(client_domains) - len(self.absent)
        training = self._here(self._participants)
        if there >= quorum and training:
            return
        missing = "; ".join(f"client {k}: {why}" for k, why in self.absent.items())
        lack = f"and ggeur.quorum asks for {quorum}; lower it or see to"
        if there >= quorum:
            lack = "and none of them trains (federate.unseen_clients_rate); see to"
        raise GGEURError(
            f"{when}: {there} of {len(client_domains)} clients are left {lack} the missing "
            f"ones. Missing: {missing or 'nobody'}"
        ) from self._refusal

    def _here(self, numbers: Collection[int]) -> list[int]:
        return [k for k in numbers if k not in self.absent]

    def _unprepared(self) -> set[int]:
        return set(self._participants) - self._prepared
