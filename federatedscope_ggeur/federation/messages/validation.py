"""What the server takes, from whom: one function for each kind of answer.

`from_bytes` of a payload has checked all that can be checked without knowing the
federation. Each function here raises `MessageError`, with the client and the field,
unless the answer can be used; whoever is given an answer afterwards relies on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    HitCounts,
)
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.secure_sums.collector import Collector
from federatedscope_ggeur.federation.exchanges.secure_sums.messages import (
    MaskedVector,
    SumKey,
)
from federatedscope_ggeur.federation.exchanges.space.messages import TotalsUpload
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.federation.wire.packing import shape_problem
from federatedscope_ggeur.methods import Method, TensorSpec
from federatedscope_ggeur.models import Model, negative_variance

#: Weights beyond it overflow float32 when they are added up over clients.
LARGEST_WEIGHT = 1e30


def validate_statistics(
    upload: StatisticsUpload,
    client_domains: Mapping[int, str],
    uploaded: Collection[int] = (),
) -> None:
    """A first upload, of the domain that the client joined with."""
    _require_known(upload.client, client_domains, upload.client in uploaded)
    if upload.domain != client_domains[upload.client]:
        raise _refusal(
            upload.client,
            "domain",
            f"{upload.domain!r}, but it joined as {client_domains[upload.client]!r}",
        )


def validate_totals(
    upload: TotalsUpload, client_domains: Mapping[int, str], told: Collection[int]
) -> None:
    """A first upload."""
    _require_known(upload.client, client_domains, upload.client in told)


def validate_sum_key(key: SumKey, collector: Collector) -> None:
    """A key of this session's roster."""
    _require_session(key.client, key.session, collector)


def validate_masked(vector: MaskedVector, collector: Collector, stage: str) -> None:
    """A vector of this session and `stage`, as long as all others."""
    _require_session(vector.client, vector.session, collector)
    if vector.stage != stage:
        problem = f"{vector.stage!r:.80}, in stage '{stage}'"
        raise _refusal(vector.client, "stage", problem)
    length = collector.length(stage)
    if len(vector.masked) != length:
        problem = f"{len(vector.masked)} numbers, and stage '{stage}' has {length}"
        raise _refusal(vector.client, "masked", problem)


def _require_session(client: int, session: bytes, collector: Collector) -> None:
    if client not in collector.roster:
        raise _refusal(client, "client", "not in the roster of the sum")
    if session != collector.session:
        raise _refusal(client, "session", "another session than the one under way")


def validate_hits(
    counts: HitCounts, uploaded: Mapping[int, int], candidates: int
) -> None:
    """One count for each candidate, of all the rows that a client has `uploaded`
    statistics of and of those that it withheld."""
    _require_known(counts.client, uploaded)
    if len(counts.hits) != candidates:
        raise _refusal(
            counts.client,
            "hits",
            f"{len(counts.hits)} counts, but there are {candidates} candidates",
        )
    if counts.rows < uploaded[counts.client]:
        raise _refusal(
            counts.client,
            "rows",
            f"{counts.rows} rows scored, but it sent statistics of "
            f"{uploaded[counts.client]}",
        )


def validate_prepare_reply(
    reply: PrepareReply,
    client_domains: Mapping[int, str],
    method: Method,
    model: Model,
    before: PrepareReply | None = None,
) -> None:
    """A reply with the tensors of the method; a repeated one counts for as much as
    the one `before`."""
    _require_known(reply.client, client_domains)
    specs = method.init_upload_shapes(model)
    _require_tensors(reply.init_upload, specs, "init_upload", reply.client)
    problem = method.init_upload_problem(reply.init_upload, model)
    if problem:
        raise _refusal(reply.client, "init_upload", problem)
    if before is not None and before.aggregation_weight != reply.aggregation_weight:
        raise _refusal(
            reply.client,
            "aggregation_weight",
            f"came back with {reply.aggregation_weight:g} in place of "
            f"{before.aggregation_weight:g}; it must have the data and settings it "
            "began with",
        )


def validate_update(
    update: ClientUpdate,
    round_number: int,
    drawn: Collection[int],
    method: Method,
    model: Model,
) -> None:
    """An update of this round, of a client drawn for it, with the method's tensors;
    its running variances are not negative."""
    if update.round_number != round_number or update.client not in drawn:
        raise _refusal(
            update.client,
            "round",
            f"an update of round {update.round_number} from a client that "
            f"{'was' if update.client in drawn else 'was not'} drawn, in round "
            f"{round_number}",
        )
    if len(update.params) and float(update.params.abs().max()) > LARGEST_WEIGHT:
        largest = float(update.params.abs().max())
        problem = (
            f"weights of up to {largest:.3g}, where {LARGEST_WEIGHT:g} is the most"
        )
        raise _refusal(update.client, "params", problem)
    _require_tensors(
        update.upload, method.upload_shapes(model), "upload", update.client
    )
    problem = method.upload_problem(update.upload, model)
    if problem:
        raise _refusal(update.client, "upload", problem)
    negative = negative_variance(model, update.params) if len(update.params) else ""
    if negative:
        raise _refusal(update.client, "params", f"'{negative}' has variances below 0")


def validate_scores(
    report: ScoreReport, round_number: int, client_domains: Mapping[int, str]
) -> None:
    """Scores of this round."""
    _require_known(report.client, client_domains)
    if report.round_number != round_number:
        raise _refusal(
            report.client,
            "round_number",
            f"scores of round {report.round_number} in round {round_number}",
        )


def _require_known(
    client: int, client_domains: Collection[int], repeated: bool = False
) -> None:
    if client not in client_domains or repeated:
        problem = "sent twice" if repeated else "not a client of this run"
        raise _refusal(client, "client", problem)


def _require_tensors(
    tensors: Mapping[str, Tensor],
    specs: Mapping[str, TensorSpec],
    field: str,
    client: int,
) -> None:
    if tensors.keys() != specs.keys():
        raise _refusal(
            client, field, f"the method sends {sorted(specs)}, got {sorted(tensors)}"
        )
    for name, spec in specs.items():
        problem = shape_problem(tensors[name], spec.shape)
        if tensors[name].dtype != spec.dtype:
            problem = f"expected {spec.dtype}, got {tensors[name].dtype}"
        if problem:
            raise _refusal(client, f"{field}.{name}", problem)


def _refusal(client: int, field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender=f"client {client}")
