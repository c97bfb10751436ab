"""What the server takes, from whom: every other message is refused by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.messages import (
    ClientUpdate,
    PrepareReply,
    ScoreReport,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.messages.wire import shape_problem
from federatedscope_ggeur.methods import Method, TensorSpec
from federatedscope_ggeur.models import Model

_FromClient = TypeVar("_FromClient", StatisticsUpload, ClientUpdate, ScoreReport)


class Admission:
    """Checks that need to know the federation; `from_bytes` has done all others.

    Every method raises `MessageError`, with the client and the field, unless the
    message can be used.

    Parameters
    ----------
    roster : mapping from client number to domain
    method : Method
    head : Head
    """

    def __init__(self, client_domains: Mapping[int, str], method: Method, model: Model):
        self._client_domains, self._method, self._head = client_domains, method, model

    def sender(self, client: int, repeated: bool = False) -> None:
        """A client of this run, that has not sent this before."""
        if client not in self._client_domains or repeated:
            raise MessageError(
                "sent twice" if repeated else "not a client of this run",
                field="client",
                sender=f"client {client}",
            )

    def in_client_order(self, messages: Iterable[_FromClient]) -> list[_FromClient]:
        """`messages` sorted by client; each from one of this run, no two from one."""
        ordered = sorted(messages, key=lambda message: message.client)
        seen: set[int] = set()
        for message in ordered:
            self.sender(message.client, message.client in seen)
            seen.add(message.client)
        return ordered

    def statistics(self, upload: StatisticsUpload, earlier: Collection[int]) -> None:
        """A first upload, of the domain the client joined with."""
        self.sender(upload.client, upload.client in earlier)
        if upload.domain != self._client_domains[upload.client]:
            raise MessageError(
                f"{upload.domain!r}, but it joined as {self._client_domains[upload.client]!r}",
                field="domain",
                sender=f"client {upload.client}",
            )

    def window(
        self, uploads: Iterable[StatisticsUpload], earlier: Collection[int]
    ) -> list[StatisticsUpload]:
        """Uploads in client order, each of which `statistics` takes: all or none."""
        ordered = self.in_client_order(uploads)
        for upload in ordered:
            self.statistics(upload, earlier)
        return ordered

    def ready(
        self, ready: PrepareReply, before: PrepareReply | None, again: bool
    ) -> None:
        """A first readiness, or one `again` with the weight it had `before`."""
        self.sender(ready.client, before is not None and not again)
        specs = self._method.init_upload_shapes(self._head)
        _check_tensors(ready.init_upload, specs, "init_upload", ready.client)
        problem = self._method.init_upload_problem(ready.init_upload, self._head)
        if problem:
            raise MessageError(
                problem, field="init_upload", sender=f"client {ready.client}"
            )
        if before is not None and before.aggregation_weight != ready.aggregation_weight:
            raise MessageError(
                f"came back with {ready.aggregation_weight:g} in place of {before.aggregation_weight:g}; it "
                "must have the data and settings it began with",
                field="aggregation_weight",
                sender=f"client {ready.client}",
            )

    def update(
        self, update: ClientUpdate, round_number: int, drawn: Collection[int]
    ) -> None:
        """An update of this round, of a client drawn for it."""
        if update.round_number != round_number or update.client not in drawn:
            raise MessageError(
                f"an update of round {update.round_number} from a client that "
                f"{'was' if update.client in drawn else 'was not'} drawn, in round "
                f"{round_number}",
                field="round",
                sender=f"client {update.client}",
            )
        specs = self._method.upload_shapes(self._head)
        _check_tensors(update.upload, specs, "upload", update.client)
        problem = self._method.upload_problem(update.upload, self._head)
        if problem:
            raise MessageError(
                problem, field="upload", sender=f"client {update.client}"
            )

    def scores(self, report: ScoreReport, round_number: int) -> None:
        """Scores of this round."""
        self.sender(report.client)
        if report.round_number != round_number:
            raise MessageError(
                f"scores of round {report.round_number} in round {round_number}",
                field="round_number",
                sender=f"client {report.client}",
            )


def _check_tensors(
    tensors: Mapping[str, Tensor],
    specs: Mapping[str, TensorSpec],
    field: str,
    client: int,
) -> None:
    sender = f"client {client}"
    if tensors.keys() != specs.keys():
        raise MessageError(
            f"the method sends {sorted(specs)}, got {sorted(tensors)}",
            field=field,
            sender=sender,
        )
    for name, spec in specs.items():
        problem = shape_problem(tensors[name], spec.shape)
        if tensors[name].dtype != spec.dtype:
            problem = f"expected {spec.dtype}, got {tensors[name].dtype}"
        if problem:
            raise MessageError(problem, field=f"{field}.{name}", sender=sender)
