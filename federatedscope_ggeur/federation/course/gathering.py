"""What clients tell in round 0 of their rows: statistics, each its own or as sums."""

from __future__ import annotations

from federatedscope_ggeur.federation.course.exchange import Exchange
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.course.requests import (
    STATISTICS,
    TOTALS,
    Requests,
)
from federatedscope_ggeur.federation.course.summing import sum_up
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.screening import Screen
from federatedscope_ggeur.federation.server import Server


class Gathering:
    """Asks the clients of one federation how their rows lie.

    Parameters
    ----------
    server : Server
    members : Membership
    exchange : Exchange
    screen : Screen
    window : int
        Clients asked at a time.
    """

    def __init__(
        self,
        server: Server,
        members: Membership,
        exchange: Exchange,
        screen: Screen,
        window: int,
    ):
        self._server, self._members, self._exchange = server, members, exchange
        self._screen, self._window = screen, window

    def statistics(self, sizes: dict[str, int]) -> Requests[int]:
        """Class statistics, where any are needed; how many (client, class) pairs the
        server has seen. `sizes` takes what each client has sent."""
        server, pairs = self._server, 0
        if server.settings.sums is not None:
            ask = self._exchange.ask
            yield from sum_up(server, self._members, ask, self._window, sizes)
        elif server.needs_statistics:
            for numbers in windows(server.participants, self._window):
                pairs += yield from self._collect(numbers, sizes)
        return pairs

    def totals(self) -> Requests[int]:
        """Totals of rows for a space, where statistics do not give them; the bytes up
        that were for it alone."""
        before, server = self._exchange.up, self._server
        if server.settings.sums is None:
            for numbers in windows(server.participants, self._window):
                asked = dict.fromkeys(self._members.here(numbers), ())
                server.space_maker.add(
                    (yield from self._exchange.ask(TOTALS, 0, asked))
                )
        return self._exchange.up - before

    def _collect(self, numbers: list[int], sizes: dict[str, int]) -> Requests[int]:
        asked = dict.fromkeys(self._members.here(numbers), ())
        uploads = yield from self._exchange.ask(STATISTICS, 0, asked, sizes)
        found = self._screen.statistics(uploads)
        self._exchange.put_out(found, "round 0, statistics")
        uploads = [upload for upload in uploads if upload.client not in found]
        self._server.add_statistics(uploads)
        return sum(len(upload.statistics.classes) for upload in uploads)
