"""The server role: the model and the merged answers that all exchanges use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import ServerContext, initial_weights
from federatedscope_ggeur.models import (
    fold,
    load_vector,
    recast,
    trainable_part,
    unfold,
)
from federatedscope_ggeur.models.folding import (
    AverageHead,
    Averaging,
    averaged,
    calibrated,
)

from .merge import Merge
from .sampling import draw_clients
from .settings import RoleSettings


@dataclass(frozen=True)
class OneShotMessages:
    """The messages that name the one-shot head to clients.

    Attributes
    ----------
    components : bytes
        What the head needs of all statistics.
    inside, outside : bytes
        The head, for clients in `summed`, and for others.
    summed : frozenset of int
        The clients whose statistics are in the components.
    """

    components: bytes
    inside: bytes
    outside: bytes
    summed: frozenset[int]

    def to(self, client: int) -> tuple[bytes, bytes]:
        """The components and the head, as the client gets them."""
        return self.components, self.inside if client in self.summed else self.outside


class Server:
    """The server's state: the global model and the clients' merged answers.

    The exchanges ask questions and store the answers here. They store only validated
    content.

    Parameters
    ----------
    client_domains : mapping from client number to domain
        Without tokens a client may join again with another domain, as long as the run
        has used none of its answers.
    settings : RoleSettings

    Attributes
    ----------
    schema : MessageSchema
        The schema by which clients' messages are decoded.
    unseen : list of int
        The clients that do not train and are only scored, drawn by seed.
    participants : list of int
        All other clients, ascending.
    params : Tensor of shape (P + Q,)
        The global model's weights, in `space`: P trained ones, then Q running
        statistics.
    solved_params : Tensor or None
        The weights of the one-shot head, on raw embeddings, once it is solved.
    trains : bool
        Whether there are rounds of training. Round 0 may show that none are needed.
    averaging : Averaging or None
        How the trained head is averaged with the one-shot head, to be scored and left;
        None if it is scored and left alone.
    one_shot : OneShotMessages or None
        From these, clients work out the one-shot head's scores of their left-out rows,
        for offsets and for rows held out. None if they need no such scores.
    held_share : float
        The share of their rows that clients do not train on; see `Client.held_out`.
    temperature : float
        The number by which the logits of the one-shot head have been divided; see
        `one_shot_calibration`.
    trained_temperature : float
        The number by which logits of the trained head are divided when it is scored or
        left.
    start_loss : float or None
        The mean loss of the one-shot head on the test rows, if it is known.
    scored_model : Model
        The kind of model that the run scores and leaves.
    space : Space
        The space of training; raw until one is made.
    merged : Merge
        The merged statistics of the clients.
    aggregation_weights : dict from client number to float
        The aggregation weights of the clients that finished round 0.
    init_uploads : dict from client number to mapping from str to Tensor
        The tensors that the method of each client sent in round 0.
    method_state : mapping from str to Tensor
        The tensors that the method keeps on the server.
    """

    def __init__(self, client_domains: Mapping[int, str], settings: RoleSettings):
        self.client_domains = dict(sorted(client_domains.items()))
        self.settings, self.task = settings, settings.task
        self.unseen = unseen_clients(self.client_domains, settings)
        unseen = set(self.unseen)
        self.participants = [k for k in self.client_domains if k not in unseen]
        self.model = self.task.build_model()
        problem = self.task.method.model_problem(self.model)
        if problem:
            raise ConfigError(f"{self.task.method.name} {problem}")
        self.params = initial_weights(self.model, self.task.seed)
        self._is_given = False
        #: Whether the method continues from `params`.
        self._is_trained = False
        self.scored_model = self.task.build_scored(self.model)
        self.space = Space.raw(self.task.dim)
        load_vector(self.model, self.params)
        self.schema = self.task.schema(self.model)
        self.merged = Merge(self.schema.no_statistics)
        self.solved_params: Tensor | None = None
        self.trains = settings.demands.trains
        self.averaging: Averaging | None = None
        self.one_shot: OneShotMessages | None = None
        self.held_share = 0.0
        self.temperature = self.trained_temperature = 1.0
        self.start_loss: float | None = None
        self.aggregation_weights: dict[int, float] = {}
        self.init_uploads: dict[int, Mapping[str, Tensor]] = {}
        self.method_state: Mapping[str, Tensor] = {}
        self._told: tuple[Mapping, Mapping] = {}, {}
        self._told_of = 0  # the clients in it

    # the model

    def start_from(self, params: Tensor) -> None:
        """Start training from weights [P] of a model on raw embeddings."""
        self._is_given = True
        self.params = unfold(self.model, params, self.space)

    def train_in(self, space: Space) -> None:
        """Set the space of training; this happens before round 0 ends."""
        self.space = space
        if self._is_given:
            self.params = unfold(self.model, self.params, space)

    def trained(self, params: Tensor) -> Tensor:
        """The trained part [P] of weights [P + Q], without running statistics."""
        return trainable_part(self.model, params)

    def begin_training(self, method_state: Mapping[str, Tensor]) -> None:
        """Begin the rounds of training with this state of the method."""
        self.method_state, self._is_trained = method_state, True

    def take_calibrated(self, params: Tensor) -> None:
        """Take the weights of the calibrated model after the last round."""
        self.params, self._is_trained = params, False

    @property
    def scored_params(self) -> Tensor:
        """The global weights [P + Q] in `space`, as they are scored and left."""
        if not self._is_trained:
            return self.params
        return self.task.method.scored_params(self.params, self.method_state)

    @property
    def raw_params(self) -> Tensor:
        """The global model's weights [P + Q] on raw embeddings."""
        return fold(self.model, self.scored_params, self.space)

    def head_params(self, closed_form: bool = False) -> Tensor:
        """The weights of a head that is scored or left, on raw embeddings.

        It is the trained head, or its mean with the one-shot head if the run averages
        them. With `closed_form` it is the one-shot head. Its kind is that of
        `scored_model`.
        """
        if closed_form:
            assert self.solved_params is not None, "the one-shot head is not solved yet"
            return self.solved_params
        params, mix = self.raw_params, self.settings.mix
        if mix is not None:
            params = mix.mixed(self.model, params)
        params = recast(self.model, params, self.scored_model)
        if self.averaging is not None:
            one_shot = self.head_params(closed_form=True)
            params = averaged(self.scored_model, one_shot, params, self.averaging)
        return calibrated(self.scored_model, params, self.trained_temperature)

    def one_shot_calibration(self) -> tuple[float, float]:
        """What the one-shot head has beside `temperature`: another one, and a floor.

        1 and 0 if it is no `AverageHead`.
        """
        if not isinstance(self.scored_model, AverageHead):
            return 1.0, 0.0
        head = self.scored_model.at(self.head_params(closed_form=True))
        assert isinstance(head, AverageHead)
        return head.temperature.item(), round(head.floor.item(), 6)  # of float32

    @property
    def rounds(self) -> int:
        """Rounds of training; 0 if the run ends with round 0."""
        return self.settings.demands.rounds if self.trains else 0

    def evaluates(self, round_number: int) -> bool:
        """Whether the head is scored after the round."""
        due = round_number % self.settings.eval_every == 0
        return due or round_number == self.settings.demands.rounds

    def context(self, round_number: int) -> ServerContext:
        """The context that the method gets on the server in a round.

        Round number 0 means the end of round 0.
        """
        weights, uploads = self.aggregation_weights, self.init_uploads
        # Entries are only added, and there may be very many: no copy if they ascend.
        if len(weights) != self._told_of:
            self._told_of = len(weights)
            if [*uploads] != sorted(weights):
                weights = dict(sorted(weights.items()))
                uploads = {k: uploads[k] for k in weights}
            if self.settings.ignore_weight:
                weights = {k: float(weight > 0) for k, weight in weights.items()}
            self._told = weights, uploads
        seed, device = self.task.seed, self.settings.training.device
        return ServerContext(round_number, self.model, *self._told, seed, device)


def unseen_clients(numbers: Iterable[int], settings: RoleSettings) -> list[int]:
    """Draw by seed the clients among `numbers` that do not train."""
    drawn, seed = settings.unseen_client_num, settings.task.seed
    return draw_clients(sorted(numbers), drawn, seed, "unseen")
