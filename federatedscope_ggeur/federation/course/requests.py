"""Every kind of request that a server makes of its clients, in one table.

A kind says what goes down, what comes back, which function answers it on the client
and which one validates the answer on the server. Everything else (the client handler,
the coordinator, the engines) works from this table; a new kind is a new entry.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.masking.settings import STAGES
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Geometry,
    HitCounts,
    InitBroadcast,
    LeaveOneOut,
    MessageSchema,
    PrepareReply,
    Prototypes,
    ScoreReport,
    SpaceBroadcast,
    StatisticsUpload,
    TotalsUpload,
    limits,
)
from federatedscope_ggeur.federation.messages.declared import Declared
from federatedscope_ggeur.federation.messages.masked import (
    MaskedRequest,
    MaskedVector,
    SumKey,
    SumKeysRequest,
)
from federatedscope_ggeur.federation.messages.validation import (
    validate_hits,
    validate_masked,
    validate_prepare_reply,
    validate_scores,
    validate_statistics,
    validate_sum_key,
    validate_totals,
    validate_update,
)
from federatedscope_ggeur.federation.server import Server

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RequestKind:
    """One kind of request.

    Attributes
    ----------
    name : str
        What it is called in texts for a person.
    message, answer_message : str
        The types of the messages down and up in FederatedScope; FS's own where it has
        some. No answer is due where the second is "".
    deadline : str
        Which of the settings ``deadline.*`` says how long answers are waited for.
    parts : tuple of payload classes
        What goes down.
    respond : callable (ClientHandler, *payloads) -> payload or None
        The client's side. A part that is empty is None.
    answer : payload class
    validate : callable (Server, Request, answer)
        The server's side: raises `MessageError` unless the answer can be used.
    schema : callable (Server) -> MessageSchema
        What the answer is decoded against.
    bound : callable (Declared, Server, answer)
        The same, by what the client declared when it joined.
    largest : callable (Server) -> int or None
        Bytes of the longest answer; None where nothing bounds it.
    part_schema : callable (Client) -> MessageSchema
        What the parts are.
    always : bool
        Clients answer it whatever their settings; others only if theirs ask for it.
    patient : bool
        A client whose connection is lost is waited for until the deadline, and asked
        again with the same bytes when it is back.
    """

    name: str
    message: str
    deadline: str
    parts: tuple[type, ...]
    respond: Callable[..., Any]
    answer_message: str = ""
    answer: Any = None
    validate: Callable[[Server, Request, Any], None] = lambda *_: None
    schema: Callable[[Server], MessageSchema] = field(default=lambda s: s.schema)
    bound: Callable[[Declared, Server, Any], None] = lambda *_: None
    largest: Callable[[Server], int | None] = lambda server: limits.PLAIN
    part_schema: Callable[[Client], MessageSchema] = field(default=lambda c: c.schema)
    always: bool = True
    patient: bool = False


STATISTICS = RequestKind(
    name="statistics",
    message="statistics_request",
    deadline="round0",
    parts=(),
    respond=lambda handler: handler.client.statistics(),
    answer_message="statistics",
    answer=StatisticsUpload,
    validate=lambda server, request, upload: validate_statistics(
        upload, server.client_domains, server.uploaded
    ),
    bound=lambda declared, server, upload: declared.check_statistics(upload),
    largest=lambda server: limits.of_statistics(server.schema),
    always=False,
)
TOTALS = RequestKind(
    name="totals",
    message="totals_request",
    deadline="round0",
    parts=(),
    respond=lambda handler: handler.client.totals(),
    answer_message="totals",
    answer=TotalsUpload,
    validate=lambda server, request, upload: validate_totals(
        upload, server.client_domains, server.space_maker.told
    ),
    bound=lambda declared, server, upload: declared.check_totals(upload),
    largest=lambda server: limits.of_totals(server.schema),
    always=False,
)
SUM_KEYS = RequestKind(
    name="sum_keys",
    message="sum_keys_request",
    deadline="round0",
    parts=(SumKeysRequest,),
    respond=lambda handler, request: handler.participant.key(request),
    answer_message="sum_key",
    answer=SumKey,
    validate=lambda server, request, key: validate_sum_key(key, server.sums.collector),
    always=False,
    patient=True,
)


def stage_of(kind: RequestKind) -> str:
    """The stage of a secure sum that a kind asks for."""
    return next(stage for stage, asking in SUM_KINDS.items() if asking is kind)


#: What the three stages of a secure sum have alike: see `masking`.
_STAGE: dict[str, Any] = {
    "deadline": "round0",
    "parts": (MaskedRequest,),
    "respond": lambda handler, request: handler.participant.masked(request),
    "answer": MaskedVector,
    "validate": lambda server, request, vector: validate_masked(
        vector, server.sums.collector, stage_of(request.kind)
    ),
    "largest": lambda server: limits.of_masked(server.settings.sums.longest),
    "always": False,
    "patient": True,
}
SUM_COUNTS = RequestKind(
    name="sum_counts",
    message="sum_counts_request",
    answer_message="masked_counts",
    **_STAGE,
)
SUM_MEANS = RequestKind(
    name="sum_means",
    message="sum_means_request",
    answer_message="masked_means",
    **_STAGE,
)
SUM_POOLED = RequestKind(
    name="sum_pooled",
    message="sum_pooled_request",
    answer_message="masked_pooled",
    **_STAGE,
)
#: The stages of a secure sum, and the kind that asks for each.
SUM_KINDS = dict(zip(STAGES, (SUM_COUNTS, SUM_MEANS, SUM_POOLED)))
LEAVE_ONE_OUT = RequestKind(
    name="hit_counts",
    message="components",
    deadline="round0",
    parts=(LeaveOneOut,),
    respond=lambda handler, message: handler.leave_one_out(message),
    answer_message="hit_counts",
    answer=HitCounts,
    validate=lambda server, request, counts: validate_hits(
        counts, server.uploaded_rows, server.num_candidates
    ),
    bound=lambda declared, server, counts: declared.check_hits(counts),
    largest=lambda server: limits.PLAIN + 8 * server.num_candidates,
    always=False,
)
PREPARE = RequestKind(
    name="prepare",
    message="geometry",
    deadline="round0",
    parts=(Geometry, Prototypes, SpaceBroadcast),
    respond=lambda handler, *parts: handler.client.prepare(*parts),
    answer_message="prepare_reply",
    answer=PrepareReply,
    validate=lambda server, request, reply: validate_prepare_reply(
        reply,
        server.client_domains,
        server.task.method,
        server.model,
        server.prepare_replies.get(reply.client),
    ),
    bound=lambda declared, server, reply: declared.check_weight(
        reply, server.settings.counts_own_rows
    ),
    largest=lambda server: limits.of_tensors(
        0, server.task.method.init_upload_shapes(server.model)
    ),
)
INIT_BROADCAST = RequestKind(
    name="init_broadcast",
    message="init_broadcast",
    deadline="round0",
    parts=(InitBroadcast,),
    respond=lambda handler, message: handler.client.receive(message),
)
TRAIN = RequestKind(
    name="train",
    message="model_para",
    deadline="train",
    parts=(Broadcast,),
    respond=lambda handler, broadcast: handler.train(broadcast),
    answer_message="model_para",
    answer=ClientUpdate,
    validate=lambda server, request, update: validate_update(
        update, request.round_number, request.parts, server.task.method, server.model
    ),
    largest=lambda server: limits.of_tensors(
        server.schema.num_parameters, server.task.method.upload_shapes(server.model)
    ),
)
EVALUATE = RequestKind(
    name="evaluate",
    message="evaluate",
    deadline="evaluate",
    parts=(Broadcast,),
    respond=lambda handler, broadcast: handler.evaluate(broadcast),
    answer_message="metrics",
    answer=ScoreReport,
    validate=lambda server, request, report: validate_scores(
        report, request.round_number, server.client_domains
    ),
    bound=lambda declared, server, report: declared.check_scores(report),
    part_schema=lambda client: client.scored_schema,
)
CALIBRATE = RequestKind(
    name="calibrate",
    message="calibrate",
    deadline="round0",
    parts=(Broadcast,),
    respond=lambda handler, broadcast: handler.calibrate(broadcast),
    answer_message="calibration_statistics",
    answer=StatisticsUpload,
    validate=lambda server, request, upload: validate_statistics(
        upload, server.client_domains
    ),
    bound=lambda declared, server, upload: declared.check_calibration(upload),
    schema=lambda server: server.task.calibration_schema(server.model),
    largest=lambda server: limits.of_statistics(
        server.task.calibration_schema(server.model)
    ),
    always=False,
)
KINDS = (
    STATISTICS,
    SUM_KEYS,
    SUM_COUNTS,
    SUM_MEANS,
    SUM_POOLED,
    LEAVE_ONE_OUT,
    TOTALS,
    PREPARE,
    INIT_BROADCAST,
    TRAIN,
    EVALUATE,
    CALIBRATE,
)
#: By the types of the messages down and up.
BY_MESSAGE = {kind.message: kind for kind in KINDS}
BY_ANSWER = {kind.answer_message: kind for kind in KINDS if kind.answer_message}


@dataclass(frozen=True)
class Request:
    """Something to carry to clients.

    Attributes
    ----------
    kind : RequestKind
    round_number : int
    parts : mapping from client number to tuple of bytes
        What goes to whom, in client order. The same bytes often go to many.
    """

    kind: RequestKind
    round_number: int
    parts: Mapping[int, tuple[bytes, ...]]


@dataclass(frozen=True)
class Absence:
    """In place of an answer: why none came, and whether the client is still there."""

    reason: str
    connected: bool = False


Replies = dict[int, Union[tuple[bytes, ...], Absence]]
#: A part of the course: yields requests, is sent their replies, returns a T.
Requests = Generator[Request, Replies, T]


def decode_answer(
    server: Server, request: Request, client: int, parts: Sequence[bytes]
) -> Any:
    """What a client answered to `request`, once it is validated.

    Raises
    ------
    MessageError
        It cannot be used; names the client and the field.
    """
    kind, sender = request.kind, f"client {client}"
    if len(parts) != 1:
        raise MessageError(
            f"expected one part, got {len(parts)}", field="parts", sender=sender
        )
    answer = kind.answer.from_bytes(parts[0], kind.schema(server), sender)
    kind.validate(server, request, answer)
    declared = server.declared.get(client)
    if declared is not None:
        kind.bound(declared, server, answer)
    return answer
