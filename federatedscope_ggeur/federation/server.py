"""The server role: all that the server does, whatever engine carries its messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.calibration import Calibration
from federatedscope_ggeur.federation.closed_form_stage import ClosedFormStage
from federatedscope_ggeur.federation.compression_log import CompressionLog
from federatedscope_ggeur.federation.divergence import not_finite, overflow_of, remedy
from federatedscope_ggeur.federation.evaluation import (
    Score,
    evaluate,
    scores_by_domain,
)
from federatedscope_ggeur.federation.global_shapes import global_geometry
from federatedscope_ggeur.federation.masking.collector import Summed
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Geometry,
    InitBroadcast,
    PrepareReply,
    Prototypes,
    ScoreReport,
    SpaceBroadcast,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.messages.declared import Declarations
from federatedscope_ggeur.federation.messages.statistics_upload import empty_statistics
from federatedscope_ggeur.federation.prototypes import PrototypeBook
from federatedscope_ggeur.federation.running_statistics import (
    mean_running_statistics,
)
from federatedscope_ggeur.federation.sampling import draw_clients, in_client_order
from federatedscope_ggeur.federation.screening import capped
from federatedscope_ggeur.federation.settings import ServerSettings
from federatedscope_ggeur.federation.space_maker import SpaceMaker
from federatedscope_ggeur.federation.summed_stage import SummedStage
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import ServerContext, Update, initial_weights
from federatedscope_ggeur.models import (
    ClosedForm,
    fold,
    load_vector,
    recast,
    trainable_part,
    unfold,
)


class Server:
    """The server.

    Parameters
    ----------
    client_domains : mapping from client number to domain
    settings : ServerSettings

    What it is given of clients has been validated (see `course.requests`).

    Attributes
    ----------
    schema : MessageSchema
        To decode the clients' messages against.
    unseen : list of int
        The clients that are only scored, drawn by seed.
    participants : list of int
        All others, ascending.
    params : Tensor of shape (P + Q,)
        The global model's weights, in `space`: those that are trained, then running
        statistics.
    scored_model : Model
        The kind of model that is scored and left.
    closed_form : ClosedFormStage or None
        The head in closed form, where there is one.
    space : Space
        What is trained in; raw until `make_space`.
    statistics : ClassStatistics or SummedStatistics
        The merged statistics of all clients so far.
    uploaded_rows : dict from client number to int
        The clients whose statistics are in it, and the rows that these are of.
    space_maker : SpaceMaker
        What `make_space` makes it of.
    compression : CompressionLog
        What it cost that they were compressed, where they were.
    calibration : Calibration or None
        The stage after the last round, where there is one.
    prototype_book : PrototypeBook
        What it keeps of the statistics to serve a client that comes back.
    prepare_replies : dict from client number to PrepareReply
        Of the clients that ended round 0.
    declared : mapping from client number to Declared
        What clients declared when they joined; nothing where they are in this process.
    """

    def __init__(self, client_domains: Mapping[int, str], settings: ServerSettings):
        self.client_domains = dict(sorted(client_domains.items()))
        self.settings, self.task = settings, settings.task
        self.unseen = unseen_clients(self.client_domains, settings)
        self.participants = [k for k in self.client_domains if k not in self.unseen]
        self.model = self.task.build_model()
        problem = self.task.method.model_problem(self.model)
        if problem:
            raise ConfigError(f"{self.task.method.name} {problem}")
        self.params = initial_weights(self.model, self.task.seed)
        self.scored_model = self.task.build_scored(self.model)
        self._given = False  # whether `params` are of a model on raw embeddings
        self._trains = False  # whether `params` are what the method goes on from
        self.space = Space.raw(self.task.dim)
        self.space_maker = SpaceMaker(self.task.space, self.task.dim)
        load_vector(self.model, self.params)
        self.schema = self.task.schema(self.model)
        self.statistics = empty_statistics(self.schema)
        self.method_state: Mapping[str, Tensor] = {}
        self.calibration: Calibration | None = None
        if settings.calibration is not None:
            seed = self.task.seed
            self.calibration = Calibration(self.model, settings.calibration, seed)
        self.prototype_book = PrototypeBook(self.client_domains, settings.prototypes)
        self.uploaded_rows: dict[int, int] = {}
        self.closed_form: ClosedFormStage | None = None
        if settings.closed_form is not None:
            domains = self.client_domains.values()
            self.closed_form = ClosedFormStage(
                *(settings.closed_form, settings.keeps_best, domains, self.task.seed),
                summed=settings.sums is not None,
            )
        self.sums = SummedStage(settings.sums)
        self.compression = CompressionLog()
        self.prepare_replies: dict[int, PrepareReply] = {}
        self.declared: Declarations = {}

    @property
    def uploaded(self) -> set[int]:
        """The clients whose statistics are in `statistics`."""
        return set(self.uploaded_rows)

    @property
    def needs_statistics(self) -> bool:
        """Whether clients are asked for statistics in round 0."""
        settings, form = self.settings, self.settings.closed_form
        whitens = self.task.method.federated and self.task.space.kind == "whitened"
        return (
            bool(settings.steps)
            or (form is not None and form.asks)
            or (whitens and settings.total_rounds > 0)
        )

    @property
    def needs_space(self) -> bool:
        """Whether round 0 makes a space for all clients to train in.

        Where nobody trains together or sends statistics each client makes its own.
        """
        trains = self.settings.total_rounds > 0 and self.task.space.kind != "raw"
        return trains and (self.task.method.federated or self.needs_statistics)

    @property
    def scored_params(self) -> Tensor:
        """The global model's weights [P + Q], in `space`, that are scored and left."""
        if not self._trains:
            return self.params
        return self.task.method.scored_params(self.params, self.method_state)

    @property
    def raw_params(self) -> Tensor:
        """The same on raw embeddings, as others see the global model."""
        return fold(self.model, self.scored_params, self.space)

    def head_params(self, closed_form: bool = False) -> Tensor:
        """The weights of a head to be scored or left, of `scored_model`, on raw
        embeddings: the trained one, or that in closed form."""
        if closed_form:
            held = self.closed_form
            assert held is not None, "the settings ask for no closed form"
            return held.solved_params
        params, mix = self.raw_params, self.settings.text_mix
        if mix is not None:
            params = mix.mixed(self.model, params)
        return recast(self.model, params, self.scored_model)

    # round 0

    def add_statistics(self, uploads: Iterable[StatisticsUpload]) -> None:
        """Fold in the uploads of one window, in client order (Eq. 4)."""
        for upload in in_client_order(uploads):
            self.uploaded_rows[upload.client] = int(upload.statistics.counts.sum())
            self.statistics = self.statistics + upload.statistics
            if self.closed_form is not None:
                self.closed_form.add(upload)
            if upload.loss is not None:
                self.compression.add(upload, self.closed_form is not None)
            self.space_maker.add_statistics(upload.statistics)
            if 2 in self.settings.steps:
                self.prototype_book.add(upload.client, upload.statistics)

    def take_sums(self, summed: Summed, roster: Iterable[int]) -> None:
        """Take the statistics of the clients in `roster` as sums over them."""
        self.sums.summed, self.statistics = summed, summed.statistics
        self.uploaded_rows = dict.fromkeys(roster, 0)
        self.space_maker.take(summed.totals())
        self.prototype_book.take(summed.released())

    def make_space(self) -> SpaceBroadcast | None:
        """Make the space of what clients told; None where it stays raw.

        Raises
        ------
        StatisticsError
            The statistics do not suffice for a whitened space.
        """
        self.space = self.space_maker.make(self.sums.released(self.statistics))
        if self._given:
            self.params = unfold(self.model, self.params, self.space)
        return None if self.space.is_raw else SpaceBroadcast(self.space)

    def geometry(self) -> Geometry:
        """The global shapes, in the space."""
        return global_geometry(self.statistics, self.space, self.task.pooled_geometry)

    def prototypes(self, client: int) -> Prototypes | None:
        """Class means, in the space, of all sources but the client's own; None without
        step 2."""
        if 2 not in self.settings.steps:
            return None
        return self.prototype_book.around(client, self.space)

    def solve(
        self, form: ClosedForm, start: ClosedForm | None
    ) -> dict[str, float | int | str]:
        """Take the head in closed form, and what training goes on from; what was chosen
        for the head. See `ClosedFormStage.solve`."""
        assert self.closed_form is not None, "the settings ask for no closed form"
        held = self.sums.for_head(form, self.statistics)
        solved, begun = self.closed_form.solve(form, start, held)
        if begun is not None:
            self.start_from(begun)
        if self.compression.uploads:
            self.compression.note_head(form, solved, self.statistics)
        return solved.report

    @property
    def num_candidates(self) -> int:
        """Of how many heads in closed form clients count hits."""
        return len(self.closed_form.candidates) if self.closed_form else 0

    def start_from(self, params: Tensor) -> None:
        """Begin, before the space is made, with weights [P] on raw embeddings."""
        self.params, self._given = params, True

    def add_prepare_reply(self, reply: PrepareReply) -> None:
        """Note what a client counts for and what its method sends once.

        A client that comes back is ready already; its first reply holds.
        """
        self.prepare_replies.setdefault(reply.client, reply)

    def start(self, absent: Collection[int] = ()) -> InitBroadcast | None:
        """End round 0; what the method made of all uploads, if anything, goes to all.

        Raises
        ------
        GGEURError
            Clients beside the `absent` ones are missing, or none has any data.
        """
        replies = self.prepare_replies
        missing = sorted(set(self.participants) - replies.keys() - set(absent))
        if missing:
            raise GGEURError(f"round 0 cannot end: clients {missing} are not ready")
        if not any(reply.aggregation_weight for reply in replies.values()):
            raise GGEURError("no client has any rows to train on")
        method, context = self.task.method, self._context(0)
        tensors = method.aggregate_init(context.init_uploads)
        params = trainable_part(self.model, self.params)
        self.method_state, self._trains = method.initial_state(params, context), True
        return InitBroadcast(tensors) if tensors else None

    def resume(
        self,
        prepare_replies: Mapping[int, PrepareReply],
        round0_tensors: Mapping[str, Tensor],
        params: Tensor,
        method_state: Mapping[str, Tensor],
        space: bytes,
    ) -> None:
        """Go on where a server of the same clients and settings was stopped.

        `space` is the message that went down; empty where it stayed raw."""
        if space:
            self.space = SpaceBroadcast.from_bytes(space, self.schema).space
        self.prepare_replies = dict(prepare_replies)
        self.prototype_book.load(round0_tensors)
        self.params, self.method_state = params, dict(method_state)
        self._trains = True

    def take_calibrated(self, params: Tensor) -> None:
        """Take the weights of the calibrated model, after the last round."""
        self.params, self._trains = params, False

    # every round

    def sample(self, round_number: int, absent: Collection[int] = ()) -> list[int]:
        """Numbers of the clients that train in a round, ascending; no absent ones."""
        numbers = [k for k in self.participants if k not in absent]
        settings = self.settings
        wanted = settings.sample_client_num
        return draw_clients(numbers, wanted, self.task.seed, "sample", round_number)

    def broadcast(self, round_number: int) -> Broadcast:
        """What is trained from."""
        return self._broadcast(round_number, self.params, train=True)

    def model_broadcast(self, round_number: int) -> Broadcast:
        """The same as a model on raw embeddings."""
        return self._broadcast(round_number, self.raw_params)

    def head_broadcast(self, round_number: int, closed_form: bool = False) -> Broadcast:
        """A head on raw embeddings, to be scored or kept; see `head_params`."""
        return self._broadcast(round_number, self.head_params(closed_form))

    def own_broadcast(self, round_number: int) -> Broadcast:
        """What a client that knows the space makes the model of its own of that it
        scores, or keeps at last."""
        return self._broadcast(round_number, self.scored_params)

    def _broadcast(self, number: int, params: Tensor, train=False) -> Broadcast:
        method = self.task.method
        params = params if method.federated else params[:0]
        download = method.download if train else method.scoring_download
        return Broadcast(number, params, download(self.method_state))

    def step(self, round_number: int, updates: Iterable[ClientUpdate]) -> None:
        """The method's server step over the updates of a round, in client order.

        Raises
        ------
        GGEURError
            It diverged to NaN or infinity.
        """
        context = self._context(round_number)
        sent = in_client_order(updates)
        counts = {u.client: context.aggregation_weights[u.client] for u in sent}
        weights = capped(counts, self.settings.max_share)
        taken = [
            Update(u.client, weights[u.client], u.params, u.steps, u.upload)
            for u in sent
        ]
        model, method = self.model, self.task.method
        statistics = mean_running_statistics(model, self.params, taken)
        trained = [replace(u, params=trainable_part(model, u.params)) for u in taken]
        after, self.method_state = method.step(
            trainable_part(model, self.params), trained, self.method_state, context
        )
        self.params = torch.cat([after, statistics]) if len(statistics) else after
        problem = not_finite(self.params, self.method_state)
        if problem:
            raise GGEURError(
                f"round {round_number}: after the server's step {problem}: "
                f"{overflow_of(sent)}training diverged; {self._remedy}"
            )

    def evaluates(self, round_number: int) -> bool:
        """Whether the head is scored after this round."""
        settings = self.settings
        due = round_number % settings.eval_every == 0
        return due or round_number == settings.total_rounds

    def aggregate_scores(
        self,
        reports: Iterable[ScoreReport],
        split: str = "test",
        among: Collection[int] | None = None,
    ) -> dict[str, Score]:
        """Scores of a split by domain, of the clients `among` (default: all)."""
        domains = self.client_domains
        held = {k: d for k, d in domains.items() if among is None or k in among}
        found = {r.client: r.scores[split] for r in reports if split in r.scores}
        return scores_by_domain(found, held)

    def score(
        self, features: Tensor, labels: Tensor, closed_form: bool = False
    ) -> Score:
        """Score the head of `head_params` on rows [n, D], [n] that the server holds."""
        return evaluate(
            self.scored_model,
            self.head_params(closed_form),
            features,
            labels,
            self.settings.device,
            self._remedy,
        )

    @property
    def _remedy(self) -> str:
        return remedy(self.task.method, self.settings.rate)

    def _context(self, round_number: int) -> ServerContext:
        replies = in_client_order(self.prepare_replies.values())
        weights = {reply.client: reply.aggregation_weight for reply in replies}
        if self.settings.ignore_weight:
            weights = {k: float(weight > 0) for k, weight in weights.items()}
        uploads = {reply.client: reply.init_upload for reply in replies}
        seed, device = self.task.seed, self.settings.device
        return ServerContext(round_number, self.model, weights, uploads, seed, device)


def unseen_clients(numbers: Iterable[int], settings: ServerSettings) -> list[int]:
    """Of the clients `numbers` those that are only scored, drawn by seed."""
    drawn, seed = settings.unseen_client_num, settings.task.seed
    return draw_clients(sorted(numbers), drawn, seed, "unseen")
