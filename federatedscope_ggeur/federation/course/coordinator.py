"""Runs a federation on the server; engines carry the messages.

`Coordinator` runs the exchanges that are due. Exchanges are generators: each yields a
`Request` and receives the replies. An engine carries the request to the clients and the
replies back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import torch

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import DataError, PluginError
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.reporting import (
    Divergence,
    Final,
    Round0,
    RoundRecord,
    Screening,
    TemperatureScaling,
)
from federatedscope_ggeur.reporting.json_values import as_json_value
from federatedscope_ggeur.reporting.records import CalibratedBy
from federatedscope_ggeur.settings import is_of_plugin, where_of

from .. import wire
from ..exchanges.base import Exchange, Requests, Spent, due_exchanges
from ..exchanges.calibration import CalibrationExchange
from ..exchanges.evaluation.exchange import EvaluationExchange
from ..exchanges.evaluation.scores import EvaluationSettings
from ..exchanges.training.exchange import TrainingExchange
from ..screening import Screen, declared_findings
from ..server import Server
from .asking import Asking
from .membership import Membership


@dataclass(frozen=True)
class Plan:
    """The settings by which the server runs a federation.

    Attributes
    ----------
    round0_window : int
        How many clients are asked at a time in round 0.
    quorum : int or None
        The run ends with an error if fewer clients are present; None means all.
    server_evaluates : bool
        Whether the server scores rows of its own. Otherwise every client scores its
        own.
    evaluation : EvaluationSettings
    screen : {"warn", "off", "refuse"}
        What happens to answers that differ much from those of all other clients.
    """

    round0_window: int
    quorum: int | None
    server_evaluates: bool
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    screen: str = "warn"

    def leaves_own(self, method: Method) -> bool:
        """Whether each client scores and leaves a model of its own."""
        return method.personal and not self.server_evaluates


E = TypeVar("E", bound=Exchange)

#: The fields of round 0's record for which nothing was sent.
_NOTHING_SENT: dict[str, Any] = {
    "statistics_bytes_up": {},
    "uploaded_pairs": 0,
    "withheld_pairs": 0,
    "geometry_bytes_down": 0,
    "prototypes_bytes_down": 0,
}
_NOT_SCORED: dict[str, Any] = dict.fromkeys(("accuracy", "avg", "std", "loss"))


class Coordinator:
    """Leads one federation through round 0 and the rounds of training.

    Parameters
    ----------
    server : Server
    plan : Plan
    rows : mapping from split to mapping from domain to Embeddings
        The rows on which the server scores a head. If the server evaluates, these are
        the rows of all domains. Otherwise they are the test sets of unseen domains.
    membership : Membership, optional
        The clients. By default all clients are connected from the start.
    dismiss : callable (client number, reason)
        Called when the server refuses a client's message. The engine then ends the
        connection.

    Attributes
    ----------
    exchanges : list of Exchange
        The exchanges that are due, in order.
    screen : Screen
    asking : Asking
        Asks the clients, and decodes and checks their answers.
    evaluation : EvaluationExchange
    folder : Path or None
        Where the run's files will be; None if it leaves none.
    store : Path or None
        Where the run keeps what clients sent, to go on from; None if it keeps nothing.
    """

    folder: Path | None = None
    store: Path | None = None

    def __init__(
        self,
        server: Server,
        plan: Plan,
        rows: Mapping[str, Mapping[str, Embeddings]],
        membership: Membership | None = None,
        dismiss: Callable[[int, str], None] = lambda number, reason: None,
    ):
        self.server, self.plan, self.rows = server, plan, rows
        if membership is None:
            membership = Membership.of(server.client_domains, plan.quorum)
        self.membership = membership
        membership.begin(server.participants)
        membership.on_domain = server.client_domains.__setitem__
        self.screen = Screen(plan.screen)
        self._demands = server.settings.demands
        self.exchanges = [part(self) for part in due_exchanges(self._demands)]
        server.merged.watchers = self.exchanges
        asking = Asking(self.exchanges, membership, self._demands.rounds, dismiss)
        self.asking, self.ask, self.tell = asking, asking.ask, asking.tell
        self.put_out, self.spent = asking.put_out, asking.spent
        self.evaluation = self.find(EvaluationExchange)

    # the course

    def round0(self) -> Requests[Round0]:
        """Run round 0: every exchange that is due before training."""
        started = self.spent()
        findings = declared_findings(self.membership.declared)
        self.put_out(self.screen.refused("declared", findings), "round 0, joining")
        of_plugins = Spent()
        for exchange in self.exchanges:
            before = self.spent()
            yield from exchange.begin()
            if is_of_plugin(type(exchange)):
                of_plugins = of_plugins + (self.spent() - before)
        for exchange in self.exchanges:
            yield from exchange.complete()
        known: dict[str, Any] = dict(_NOTHING_SENT)
        for exchange in self.exchanges:
            _note(known, exchange, exchange.record())
        apart = sum((e.apart for e in self.exchanges), Spent())
        clients = sorted(self.server.merged.rows)
        if self.server.trains:
            clients = self.membership.prepared
        return Round0(
            clients=clients,
            seconds=(self.spent() - started - apart).seconds,
            space=self.server.space.report(),
            exchanges_bytes_up=of_plugins.up,
            exchanges_bytes_down=of_plugins.down,
            **known,
        )

    def round(self, number: int) -> Requests[RoundRecord]:
        """Run one round of training, and the evaluation if it is due."""
        started, known = self.spent(), dict(_NOT_SCORED)
        self.screen.round = number
        yield from self.welcome_back()
        for exchange in self.exchanges:
            _note(known, exchange, (yield from exchange.round(number)))
        return self.round_record(number, self.spent() - started, known)

    def after_rounds(self) -> Requests[RoundRecord | TemperatureScaling | None]:
        """After the last round, calibrate the head or find its temperature.

        Returns None if neither is due.
        """
        # No round has this number. So a late answer cannot pass for an answer of this
        # step.
        number = self._demands.rounds + 1
        if self._demands.calibrates:
            return (yield from self._calibrate(number))
        if self._demands.scales_trained:
            return (yield from self.evaluation.scale_trained(number))
        return None

    def _calibrate(self, number: int) -> Requests[RoundRecord]:
        """Calibrate the head and score the result."""
        started, calibration = self.spent(), self.find(CalibrationExchange)
        details = yield from calibration.run(number)
        scored = yield from self.evaluate(number)
        spent = self.spent() - started - calibration.apart
        return self.round_record(number, spent, scored, method="ccvr", details=details)

    def welcome_back(self) -> Requests[None]:
        """Send returned clients the messages that they missed.

        Every round begins with this. After a restart an engine may run it before the
        round, so that bytes sent twice do not count in the round.
        """
        returned = self.membership.take_returned() if self.server.trains else []
        if returned:
            for exchange in self.exchanges:
                yield from exchange.catch_up(returned)

    # for the exchanges

    def find(self, kind: type[E]) -> E:
        """The exchange of the class `kind` in this run."""
        return next(one for one in self.exchanges if isinstance(one, kind))

    def evaluate(self, number: int) -> Requests[dict[str, Any]]:
        """Score the head, also for each client; in round 0 the one-shot head."""
        scored = yield from self.evaluation.score(number)
        return {**scored, "client_accuracy": self.evaluation.client_accuracy() or None}

    def round_record(
        self, number: int, spent: Spent, known: Mapping[str, Any], **made_by: Any
    ) -> RoundRecord:
        """The record of a round, or of a one-shot head."""
        fields = {"round": number, "clients": [], **known, **made_by}
        return RoundRecord(**fields, **spent.recorded())

    # for the engines

    @property
    def diverged(self) -> Divergence | None:
        """Signs from the last evaluated round that training has diverged, or None."""
        if not self._demands.trains:
            return None
        return self.find(TrainingExchange).divergence.signs

    @property
    def screening(self) -> Screening:
        """The findings of screening, and the kinds of answers that it cannot screen."""
        unscreened = [e.UNSCREENED for e in self.exchanges if e.UNSCREENED]
        return Screening(self.screen.findings, unscreened)


def _note(known: dict[str, Any], exchange: Exchange, values: Mapping[str, Any]) -> None:
    """Add the values that an exchange records to `known`.

    Raises
    ------
    PluginError
        A plugin's exchange records values that JSON cannot hold.
    """
    part = type(exchange)
    if not is_of_plugin(part):
        known.update(values)
        return
    try:
        own = {exchange.name: as_json_value(dict(values), "it")} if values else {}
    except (DataError, TypeError, ValueError) as error:
        raise PluginError(
            f"the exchange '{exchange.name}'{where_of(part)} must record a dict of "
            f"plain values: {error}"
        ) from error
    known["exchanges"] = {**known.get("exchanges", {}), **own}


#: What `Final.head` and `Final.calibrated_by` may say; "" stands for None.
_HEADS = ("trained", "calibrated", "closed_form")
_CALIBRATED_BY = ("", *get_args(CalibratedBy))


def _put_accuracy(
    content: wire.Content, name: str, accuracy: Mapping[str, float] | None
) -> None:
    if accuracy is not None:
        numbers, tensors = content
        numbers["domains"] = list(accuracy)
        tensors[name] = torch.tensor(list(accuracy.values()), dtype=torch.float64)


def _take_accuracy(message: wire.Message, name: str, *_: Any) -> dict | None:
    if not message.has("domains"):
        return None
    domains = message.texts("domains")
    shares = message.tensor(name, torch.float64, (len(domains),), (0, 1))
    return dict(zip(domains, shares.tolist()))


class Ending(wire.Payload, kind="ending"):
    """A message from server to client after the last round, about the final model.

    Attributes
    ----------
    head : {"trained", "calibrated", "closed_form"}
    calibrated_by : str or None
        As `Final.calibrated_by`.
    accuracy : mapping from domain to float, or None
        The test accuracy of each scored domain; None if the server does not share it
        (``ggeur.share_results``).
    """

    head: Any = wire.text(_HEADS)
    calibrated_by: Any = wire.text(
        _CALIBRATED_BY, converts=(lambda by: by or "", lambda by: by or None)
    )
    accuracy: Mapping[str, float] | None = wire.own(
        _take_accuracy, _put_accuracy, default=None
    )

    @classmethod
    def of(cls, final: Final, shares: bool) -> Ending:
        """Make the message from a run's score; `shares` adds accuracies by domain."""
        scored = {d: a for d, a in final.accuracy.items() if a is not None}
        return cls(final.head, final.calibrated_by, scored if shares else None)
