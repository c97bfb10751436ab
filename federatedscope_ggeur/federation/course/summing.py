"""Secure sums as requests: keys, then a masked vector a stage, of one roster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.course.requests import (
    SUM_KEYS,
    SUM_KINDS,
    RequestKind,
    Requests,
)
from federatedscope_ggeur.federation.masking.collector import Collector
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.server import Server

#: Kind, round, what goes to whom, and where sizes of answers are noted.
Ask = Callable[..., Requests[list]]


def sum_up(
    server: Server, members: Membership, ask: Ask, window: int, sizes: dict[str, int]
) -> Requests[None]:
    """The statistics of all clients that train and are there, to the server as sums.

    Nobody of the roster may be missing in the end: its masks would stay in the sum. A
    client whose connection is lost is waited for until the deadline.

    Parameters
    ----------
    server : Server
    members : Membership
    ask : callable
        `Exchange.ask`.
    window : int
        Clients asked at a time.
    sizes : dict from client number, as text, to int
        Takes the bytes of all that each client sends.

    Raises
    ------
    GGEURError
        Too few clients, one is lost, or a total makes no sense.
    """
    settings = server.settings.sums
    assert settings is not None, "the settings ask for no secure sums"
    roster = members.here(server.participants)
    rows = None
    if all(k in server.declared for k in roster):
        rows = sum(server.declared[k].train for k in roster)
    collector = server.sums.collector = Collector(settings, roster, rows)

    def asked(
        kind: RequestKind, data: bytes, numbers: Collection[int]
    ) -> Requests[list]:
        own: dict[str, int] = {}
        answers = yield from ask(kind, 0, dict.fromkeys(numbers, (data,)), own)
        for k, size in own.items():
            sizes[k] = sizes.get(k, 0) + size
        _require_all(kind, numbers, [one.client for one in answers], members.absent)
        return answers

    begin = collector.keys_request().to_bytes()
    collector.take_keys((yield from asked(SUM_KEYS, begin, roster)))
    for stage in settings.stages:
        kind = SUM_KINDS[stage]
        data = collector.request(stage).to_bytes()
        for numbers in windows(roster, window):
            collector.add((yield from asked(kind, data, numbers)))
        collector.end(stage)
        if collector.nearly_all:
            raise GGEURError(
                "round 0, secure sums: one client owns all but a few of all rows, and "
                "would learn the others' of all that is made of the sums; nothing is "
                "sent"
            )
    server.take_sums(collector.summed(), roster)


def _require_all(
    kind: RequestKind,
    asked: Collection[int],
    answered: Collection[int],
    absent: Mapping[int, str],
) -> None:
    missing = sorted(set(asked) - set(answered))
    if missing:
        why = "; ".join(
            f"client {k}: {absent.get(k, 'no answer that can be used')}"
            for k in missing
        )
        raise GGEURError(
            f"round 0, {kind.name}: a secure sum needs every client that took part in "
            f"its keys, and {len(missing)} of {len(asked)} are missing. {why}. Who is "
            f"lost is waited for as long as {setting('deadline')} says. Nothing was "
            "learnt of anyone; begin the run again"
        )
