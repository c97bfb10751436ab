"""Requests to clients and their answers, as every engine carries them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, Union

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Server
from federatedscope_ggeur.federation.messages import (
    ClientUpdate,
    PrepareReply,
    ScoreReport,
    StatisticsUpload,
)

T = TypeVar("T")
Answer = Union[StatisticsUpload, PrepareReply, ClientUpdate, ScoreReport]


@dataclass(frozen=True)
class Request:
    """Something to carry to clients.

    Attributes
    ----------
    kind : {"statistics", "prepare", "share", "train", "score", "calibrate"}
    round_number : int
    parts : mapping from client number to tuple of bytes
        What goes to whom, in client order. The same bytes often go to many.
    answered : bool
        Whether each of them answers; "share" alone has no answer.
    """

    kind: str
    round_number: int
    parts: Mapping[int, tuple[bytes, ...]]
    answered: bool = True


@dataclass(frozen=True)
class Absence:
    """In place of an answer: why none came, and whether the client is still there."""

    reason: str
    connected: bool = False


Replies = Mapping[int, Union[tuple[bytes, ...], Absence]]
Conversation = Generator[Request, Replies, T]


def decode_answer(
    server: Server, request: Request, client: int, parts: Sequence[bytes]
) -> Answer:
    """What a client answered to `request`.

    Raises
    ------
    MessageError
        It cannot be used; names the client and the field.
    """
    sender = f"client {client}"
    if len(parts) != 1:
        raise MessageError(
            f"expected one part, got {len(parts)}", field="parts", sender=sender
        )
    data, admission = parts[0], server.admission
    if request.kind == "statistics":
        upload = StatisticsUpload.from_bytes(data, server.schema, sender)
        admission.statistics(upload, server.uploaded)
        return upload
    if request.kind == "calibrate":
        upload = StatisticsUpload.from_bytes(data, server.calibration.schema, sender)
        admission.statistics(upload, ())
        return upload
    if request.kind == "prepare":
        ready = PrepareReply.from_bytes(data, server.schema, sender)
        admission.ready(ready, server.prepare_replies.get(client), again=True)
        return ready
    if request.kind == "train":
        update = ClientUpdate.from_bytes(data, server.schema, sender)
        admission.update(update, request.round_number, request.parts)
        return update
    report = ScoreReport.from_bytes(data, server.schema, sender)
    admission.scores(report, request.round_number)
    return report
