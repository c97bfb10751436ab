"""The client role: all that one client does, whatever engine carries its messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import (
    GGEURError,
    MessageError,
    setting,
)
from federatedscope_ggeur.federation.divergence import not_finite, remedy
from federatedscope_ggeur.federation.evaluation import evaluate
from federatedscope_ggeur.federation.memory import MemoryBudget
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Geometry,
    HitCounts,
    InitBroadcast,
    LeaveOneOut,
    PrepareReply,
    Prototypes,
    ScoreReport,
    SpaceBroadcast,
    StatisticsUpload,
    TotalsUpload,
)
from federatedscope_ggeur.federation.messages.schema import (
    StatisticsForm,
)
from federatedscope_ggeur.federation.privacy import (
    apply_min_count,
    coarse_means,
    rows_for_totals,
)
from federatedscope_ggeur.federation.prototypes import of_the_others
from federatedscope_ggeur.federation.rows import (
    check_batches,
    check_rows,
    chosen_rows,
)
from federatedscope_ggeur.federation.settings import ClientSettings
from federatedscope_ggeur.federation.training import fit, moved
from federatedscope_ggeur.geometry import (
    AugmentedSet,
    ClassStatistics,
    Space,
    Totals,
    augment,
)
from federatedscope_ggeur.methods import LocalContext, LocalOutcome
from federatedscope_ggeur.methods.base import Tensors
from federatedscope_ggeur.models import CPU, fold, trainable_part
from federatedscope_ggeur.models.closed_forms import Rows, left_out_hits
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import derive_seed

logger = get_logger(__name__)


class Client:
    """One client.

    Parameters
    ----------
    number : int
        Its data index, from 1; keys every draw.
    domain : str
    features : Tensor of shape (n, D), float32
        Its training embeddings; n = 0 is allowed.
    labels : Tensor of shape (n,), int64
    settings : ClientSettings
    memory : MemoryBudget
        Shared by the clients of a process.

    Attributes
    ----------
    schema : MessageSchema
        To decode the server's messages against.
    scored_schema : MessageSchema
        The same for a model to be scored, which may be of another kind than `model`.
    space : Space
        What it trains in, from `prepare` on: its training set and weights are there.
        All else, `features` too, is of raw embeddings.
    """

    def __init__(
        self,
        number: int,
        domain: str,
        features: Tensor,
        labels: Tensor,
        settings: ClientSettings,
        memory: MemoryBudget,
    ):
        self.number, self.domain = number, domain
        self.features, self.labels = features, labels
        self.settings, self._memory = settings, memory
        self.task = settings.task
        self.model = memory.model(self.task)
        self.schema = self.task.schema(self.model)
        check_rows(self.model, features)
        self.space = Space.raw(self.task.dim)
        self._device = settings.training.device
        self.scored_model = self.task.build_scored(self.model)
        self.scored_schema = self.task.schema(self.scored_model)
        self.model.to(self._device)
        self.scored_model.to(self._device)
        self.recipe: AugmentedSet | None = None
        self.aggregation_weight = 0.0
        #: The method's own tensors on this client, by the round that left them.
        self.states: dict[int, dict[str, Tensor]] = {}
        self._counts = torch.bincount(labels, minlength=self.task.num_classes)
        self._init_broadcast: dict[str, Tensor] = {}
        self._kept: tuple[Tensor, Tensor] | None = None

    def statistics(self) -> StatisticsUpload:
        """Round 0: what goes up, after the min-count threshold."""
        statistics = ClassStatistics.from_embeddings(
            self.features, self.labels, self.task.num_classes
        )
        return self._upload(statistics, self.task.statistics)

    def totals(self) -> TotalsUpload:
        """Round 0: how the rows lie that may be told of, for the space."""
        least, sends = self.settings.min_samples, self.settings.sends_statistics
        told = rows_for_totals(self.labels, self._counts, least, sends)
        within = 0.0
        if sends and self.task.statistics.content == "means":
            for c in torch.nonzero(self._counts >= least).flatten().tolist():
                within += Totals.of_rows(self.features[self.labels == c]).spread
        totals = Totals.of_rows(self.features[told])
        if self.settings.float32_means:
            totals = replace(totals, mean=totals.mean.float().double())
        return TotalsUpload(self.number, totals, within)

    def last_input_statistics(self, broadcast: Broadcast) -> StatisticsUpload:
        """After the last round: those of what the last layer takes in, likewise, with
        the weights of a model on raw embeddings."""
        model = self.model.at(broadcast.params)
        inputs = model.in_chunks(model.last_input, self.features).cpu()
        classes = self.task.num_classes
        statistics = ClassStatistics.from_embeddings(inputs, self.labels, classes)
        return self._upload(statistics, self.task.statistics.by_class)

    def _upload(
        self, statistics: ClassStatistics, form: StatisticsForm
    ) -> StatisticsUpload:
        allowed = apply_min_count(statistics, self.settings.min_samples)
        allowed = coarse_means(allowed) if self.settings.float32_means else allowed
        return StatisticsUpload.of(self.number, self.domain, allowed, form)

    def hit_counts(
        self, message: LeaveOneOut, validation: Embeddings | None = None
    ) -> HitCounts:
        """Round 0: how many of its rows each candidate for the head in closed form
        classifies rightly. A row is left out of what it is in; one of a class that was
        withheld is in nothing, and neither are those for `validation`."""
        form, names = self.settings.closed_form, message.components.domain_names
        if form is None or self.domain not in names:
            raise MessageError(
                f"{self.domain!r} is not among {names}",
                field="domains",
                sender="the server",
            )
        where = self.number, names.index(self.domain)
        inside = (self._counts >= self.settings.min_samples)[self.labels]
        scores = message.scores(form)
        own = Rows(self.features, self.labels, *where, inside)
        hits, total = left_out_hits(scores, own), len(own)
        if validation is not None and len(validation):
            x, y = validation.features, validation.labels
            nowhere = torch.zeros(len(y), dtype=torch.bool)
            hits += left_out_hits(scores, Rows(x, y, *where, nowhere))
            total += len(y)
        return HitCounts(self.number, total, hits)

    def prepare(
        self,
        geometry: Geometry | None,
        prototypes: Prototypes | None,
        space: SpaceBroadcast | None = None,
    ) -> PrepareReply:
        """Round 0: set up the recipe of the training set from what came down.

        Without geometry (no steps) the client trains on its own rows. Geometry and
        prototypes are in the space that came with them.
        """
        self.space = self._own_space() if space is None else space.space
        told = self._counts >= self.settings.min_samples
        used = told[self.labels] | self.settings.train_withheld
        rows, labels = chosen_rows(self.features, self.labels, used)
        features = self.space.features(rows)
        if prototypes is None:
            prototypes = Prototypes(labels[:0], features[:0])
        elif prototypes.counts is not None:
            own = self.features, self.labels
            prototypes = of_the_others(prototypes, *own, self.space)
        self.recipe = augment(
            features,
            labels,
            geometry.shapes if geometry else {},
            prototypes.prototypes,
            prototypes.labels,
            self.settings.augmentation,
            derive_seed(self.task.seed, self.number, "augment"),
        )
        weight = {
            "augmented": self.recipe.rows,
            "original": len(labels),
            "statistics": int(self._counts[told].sum()),
        }[self.settings.weight]
        training = self.settings.training
        check_batches(self.model, training, self.recipe.rows, self.number)
        if training.drop_last and self.recipe.rows < training.batch_size:
            logger.warning(
                "client %d never trains: its %d rows are fewer than %s %d, and %s is "
                "True",
                self.number,
                self.recipe.rows,
                setting("batch_size"),
                training.batch_size,
                setting("drop_last"),
            )
            weight = 0
        context = self._context(0, torch.zeros(0), {})
        method = self.task.method
        init_upload = method.init_upload(features, labels, context)
        self.aggregation_weight = float(weight)
        return PrepareReply(self.number, self.aggregation_weight, init_upload)

    def receive(self, message: InitBroadcast) -> None:
        """Round 0: keep what the method sends to everyone."""
        self._init_broadcast = dict(message.tensors)

    def train(self, broadcast: Broadcast) -> ClientUpdate:
        """One round: train from the broadcast weights.

        Raises
        ------
        GGEURError
            Training diverged to NaN or infinity, or to what the method cannot send.
        """
        number, settings = broadcast.round_number, self.settings
        features, labels = self._training_set(number)
        context = self._context(number, broadcast.params, broadcast.download)
        hooks = self.task.method.local(moved(context, self._device))
        if settings.text_pull is not None:
            hooks = settings.text_pull.added(hooks, self.model, self.space)
        seed = derive_seed(self.task.seed, self.number, "fit", number)
        with self.model.of_client(self._counts):
            result = fit(
                self.model,
                broadcast.params if hooks.start is None else hooks.start,
                features,
                labels,
                settings.training.in_round(number),
                seed,
                hooks,
            )
        self._check(number, not_finite(result.weights, {}))
        upload: Tensors = {}
        if hooks.finish is not None:
            trained = result.weights.to(self._device)
            params = trainable_part(self.model, trained)
            outcome = LocalOutcome(params, result.steps, features, labels, trained)
            upload, state = hooks.finish(outcome)
            # The server's own check, here where it is known what to do.
            problem = self.task.method.upload_problem(upload, self.model)
            self._check(
                number, not_finite(result.weights, {**upload, **state}) or problem
            )
            upload = {name: t.cpu() for name, t in upload.items()}
            # The set may be drawn into memory that other clients use next.
            kept = {n: t.detach().to(CPU, copy=True) for n, t in state.items()}
            self.states = _newest({**self.states, number: kept}, number)
        weights = result.weights if self.task.method.federated else result.weights[:0]
        return ClientUpdate(self.number, number, weights, result.steps, upload)

    def score(
        self, broadcast: Broadcast, rows: Mapping[str, Embeddings]
    ) -> ScoreReport:
        """Score `eval_params` of a round on rows of the client's, by split."""
        params, device = self.eval_params(broadcast), self._device
        scores = {
            split: evaluate(
                self.scored_model,
                params,
                held.features,
                held.labels,
                device,
                self._remedy,
            )
            for split, held in rows.items()
        }
        return ScoreReport(self.number, broadcast.round_number, scores)

    def eval_params(self, broadcast: Broadcast) -> Tensor:
        """The client's weights [P + Q] on raw embeddings after a round: those
        broadcast, or its own."""
        number, method = broadcast.round_number, self.task.method
        context = self._context(number, broadcast.params, broadcast.download)
        context = replace(context, state=self._state_before(number + 1))
        params = method.eval_params(context)
        return fold(self.model, params, self.space) if method.personal else params

    def _check(self, round_number: int, problem: str) -> None:
        if problem:
            raise GGEURError(
                f"client {self.number}, round {round_number}: training diverged, "
                f"{problem}; {self._remedy}"
            )

    @property
    def _remedy(self) -> str:
        return remedy(self.task.method, self.settings.training.optimizer.lr)

    @property
    def state(self) -> dict[str, Tensor]:
        """The method's own tensors after the last round this client trained in."""
        return self.states[max(self.states)] if self.states else {}

    def _state_before(self, round_number: int) -> dict[str, Tensor]:
        earlier = [number for number in self.states if number < round_number]
        return self.states[max(earlier)] if earlier else {}

    def _own_space(self) -> Space:
        """Where none came down: raw or, where nobody else trains the client's model, of
        its own rows."""
        if self.task.method.federated:
            return Space.raw(self.task.dim)
        classes = self.task.num_classes
        return self.task.space.of_rows(self.features, self.labels, classes)

    def _training_set(self, round_number: int) -> tuple[Tensor, Tensor]:
        if self.recipe is None:
            raise GGEURError(
                f"client {self.number} was asked to train before round 0 was over"
            )
        if self._kept is not None:
            return self._kept
        if self.model.takes_images:  # nothing to draw, so no copy of them either
            self._kept = self._on_device((self.features, self.labels))
            return self._kept
        recipe = self.recipe
        try:
            if recipe.same_every_round and self._memory.reserve(recipe.nbytes):
                self._kept = self._on_device(recipe.draw(round_number))
                return self._kept
            scratch = self._memory.scratch(recipe.rows, self.features.shape[1])
            return self._on_device(recipe.draw(round_number, out=scratch))
        except (MemoryError, RuntimeError) as error:
            raise GGEURError(
                f"client {self.number}: its augmented set of {recipe.rows} rows "
                f"({recipe.nbytes / 1e9:.1f} GB) cannot be made; lower "
                f"{setting('step1_size')} and {setting('step2_size')}, or what is set "
                "in their place"
            ) from error

    def _on_device(self, rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        features, labels = rows
        return features.to(self._device), labels.to(self._device)

    def _context(self, round_number, weights, download) -> LocalContext:
        return LocalContext(
            self.number,
            round_number,
            self.model,
            trainable_part(self.model, weights),
            download,
            self._init_broadcast,
            self._state_before(round_number),
            self._counts,
            self.settings.min_samples,
            self.settings.training.in_round(round_number).optimizer,
            self.task.seed,
            weights,
        )


def _newest(states: dict, last: int) -> dict:
    """The two newest up to round `last`: a restarted server may repeat one round."""
    kept = sorted(number for number in states if number <= last)[-2:]
    return {number: states[number] for number in kept}
