"""The trainer of ``trainer.type: ggeur_trainer`` in FederatedScope (FS)."""

from __future__ import annotations

from pathlib import Path

import torch
from federatedscope.core.trainers.base_trainer import BaseTrainer

from federatedscope_ggeur.cfg_ggeur.fs_keys import TRAINER
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import Score, evaluate
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.exchanges import RequestKind
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models import load_vector, to_vector
from federatedscope_ggeur.printable import get_logger

from ..run import checkpoint_place
from ..workers import client_side, settings_for
from .data import ClientSplits, ServerSplits, Splits

logger = get_logger(__name__)


class GGEURTrainer(BaseTrainer):
    """Trains and scores a head by the same `fit` and `evaluate` as every engine.

    The worker passes each request of the server to `answer`. The other methods of FS's
    trainers act on `model`, and exist for FS's own code.

    Parameters
    ----------
    model : Head
    data : Splits
        The data of a client or the server, from the plugin's data function.
    device, config, only_for_eval, monitor : as FS gives them

    Raises
    ------
    ConfigError
        The data do not come from the plugin's data function.
    """

    def __init__(self, model, data, device, config, only_for_eval=False, monitor=None):
        if not isinstance(data, Splits):
            raise ConfigError(
                f"trainer.type {TRAINER} needs a data.type of the plugin, "
                "'<name>@ggeur'"
            )
        super().__init__(model, data, device)
        self.config, self.only_for_eval, self.monitor = config, only_for_eval, monitor
        self._rounds = 0
        if isinstance(data, ClientSplits):
            self._set_up_role(data, config)

    def _set_up_role(self, data: ClientSplits, config) -> None:
        clients = config.federate.client_num
        self.settings = settings = settings_for(config, data, clients, data.prepared)
        # FS knows only the plain head when it makes its models.
        task = settings.role.task
        other = task.model.other
        if other is not None and other.takes_images:
            self.model = data.shared.memory.model(task)
        elif other is not None or task.model.closed_form != "none":
            self.model = task.build_model()
        place = checkpoint_place(Path(config.outdir), settings)
        asked = bool(settings.save_to)
        self._handler = client_side(data.held, settings, data.shared, place, asked)
        self.client = self._handler.client
        data.roles[self.client.number] = self.client
        if settings.restore_from:
            kept = ClientStore(settings.restore_from, self.client.number)
            self.client.states = kept.load()
            if task.method.keeps_state and not self.client.states:
                logger.warning(
                    "client %d: the file of its state '%s' is missing, so it begins "
                    "anew; this is right only if the client has never trained",
                    self.client.number,
                    kept.path,
                )

    def answer(self, kind: RequestKind, parts) -> tuple[bytes, ...]:
        """Answer a request of the server; see `ClientHandler.answer`."""
        return self._handler.answer(kind, parts)

    def train(self):
        """Train for one round from the weights of `model`, or from the client's own.

        A method that needs more of the server than weights takes `answer` alone.

        Returns
        -------
        rows : float
            The client's weight in averages.
        state_dict : dict
        results : dict
            An empty dict.
        """
        if self.client.recipe is None:
            self._handler.side(AugmentationClient).prepare(None, None)
        self._rounds += 1
        broadcast = Broadcast(self._rounds, to_vector(self.model))
        update = self._handler.side(TrainingClient).train(broadcast)
        trained = Broadcast(self._rounds, update.params)
        load_vector(self.model, self.own_params(trained))
        return self.client.aggregation_weight, self.get_model_para(), {}

    def own_params(self, broadcast: Broadcast) -> torch.Tensor:
        """The weights that this client scores; see `EvaluationClient.eval_params`."""
        return self._handler.side(EvaluationClient).eval_params(broadcast)

    def evaluate(self, target_data_split_name="test"):
        """Compute FS's metrics of `model` on a split.

        They are acc, correct, loss, avg_loss and total. On the server a split holds the
        rows of all domains.
        """
        params = to_vector(self.model)
        score = sum(
            (
                evaluate(self.model, params, x, y)
                for x, y in self._rows(target_data_split_name)
            ),
            Score(),
        )
        return score.metrics(target_data_split_name)

    def _rows(self, split: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if isinstance(self.data, ServerSplits):
            held = self.data.rows.get(split, {})
            return [(rows.features, rows.labels) for rows in held.values()]
        part = self.data[split]
        return [(torch.from_numpy(part["x"]), torch.from_numpy(part["y"]))]

    def update(self, model_parameters, strict=False):
        """Load a state dict into `model`."""
        self.model.load_state_dict(model_parameters, strict=strict)

    def get_model_para(self):
        """A copy of the state dict of `model`."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def take_head(self, params: torch.Tensor) -> None:
        """Load the final head, a flat vector [P], into a `model` of its kind."""
        self.model = self.client.task.build_scored(self.model)
        load_vector(self.model, params)
