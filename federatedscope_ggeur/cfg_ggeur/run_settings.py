"""Turn a checked config into the frozen settings that lower packages take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from federatedscope_ggeur.data.rows import NOT_KNOWN, Given
from federatedscope_ggeur.federation import (
    EarlyStopSettings,
    EvaluationSettings,
    RoleSettings,
    Task,
    TrainingSettings,
)
from federatedscope_ggeur.federation.course.plan import Plan
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.augmentation.keys import set_settings
from federatedscope_ggeur.federation.exchanges.base import RunFacts, due_exchanges
from federatedscope_ggeur.federation.exchanges.calibration.keys import (
    calibration_settings,
)
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.statistics.keys import statistics_form
from federatedscope_ggeur.federation.exchanges.statistics.threshold import (
    StatisticsSettings,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import RoundSettings
from federatedscope_ggeur.federation.prepared import Prepared
from federatedscope_ggeur.geometry import SpaceSettings
from federatedscope_ggeur.machine import free_memory
from federatedscope_ggeur.models import ModelSettings, two_kinds
from federatedscope_ggeur.reporting import TrackingSettings
from federatedscope_ggeur.settings import NOT_SET

from .check import local_optimizer
from .demands import closed_form_of, demands_of, keeps_best, other_model_of
from .devices import training_device
from .keys import MEMORY_LIMIT
from .method_settings import agreed_settings, base_method, method_of
from .schedule import local_schedule
from .tracking import tracking_settings
from .transform import expected_rows
from .yaml_file import plain_config

#: The share of a GPU's free memory that kept sets may take.
GPU_SHARE = 0.6


@dataclass(frozen=True)
class RunSettings:
    """The settings that an engine needs to set up a run and to run its rounds."""

    role: RoleSettings
    plan: Plan
    workers: int
    num_threads: int
    memory_limit: float
    save_to: str
    restore_from: str
    checkpoint_every: float | None
    agreed: Mapping[str, str]
    tracking: TrackingSettings

    @property
    def demands(self) -> Demands:
        return self.role.demands

    @property
    def rounds(self) -> int:
        return self.demands.rounds


def run_settings(
    cfg,
    num_classes: int,
    dim: int,
    num_clients: int,
    prepared: Prepared | None = None,
    class_names: Sequence[str] = (),
    encoder: str = "",
    given: Given = NOT_KNOWN,
) -> RunSettings:
    """The settings of a run with `cfg`, the same on every engine.

    Parameters
    ----------
    cfg : config
    num_classes, dim, num_clients : int
        The numbers of the data's classes, of their dimensions, and of clients.
    prepared : Prepared, optional
        What was prepared of the classes' names.
    class_names : sequence of str
        Some exchanges require them, and say so.
    encoder : str
        The name of the encoder that made the embeddings.
    given : Given
        How the rows were given.
    """
    ggeur, demands = cfg.ggeur, demands_of(cfg)
    training, agreed = training_settings(cfg), agreed_settings(cfg)
    model, scored = model_settings(cfg, prepared), scored_settings(cfg, prepared)
    task = Task(
        num_classes=num_classes,
        dim=dim,
        model=model,
        method=method_of(cfg),
        seed=cfg.seed,
        statistics=statistics_form(demands),
        pooled_geometry=ggeur.geometry == "pooled",
        # Another model takes rows as they are.
        space=SpaceSettings(
            ggeur.space if model.other is None else "raw", ggeur.whitened.shrinkage
        ),
        scored=scored if two_kinds(scored, model) else None,
        counted_prototypes=demands.only_totals,
    )
    own: list[object] = [
        StatisticsSettings(ggeur.privacy.float32_means),
        set_settings(demands),
        RoundSettings(
            _sample_client_num(cfg.federate, num_clients),
            prepared.pull if prepared else None,
            demands["batched"],
        ),
    ]
    form = closed_form_of(ggeur, prepared.known if prepared else None)
    if form is not None:
        own.append(ClosedFormSettings(form))
    if demands.calibrates:
        own.append(calibration_settings(demands, training))
    facts = RunFacts(
        demands,
        num_classes,
        dim,
        expected_rows(cfg, class_names, encoder, given),
        agreed,
        plain_config(cfg),
    )
    made = [part.settings_of(facts) for part in due_exchanges(demands)]
    own += [one for one in made if one is not None]
    role = RoleSettings(
        task,
        demands,
        training,
        min_samples=int(ggeur.privacy.min_samples),
        eval_every=cfg.eval.freq,
        unseen_client_num=_unseen_client_num(cfg.federate, num_clients),
        ignore_weight=cfg.federate.ignore_weight,
        max_share=ggeur.max_share,
        mix=prepared.mix if prepared else None,
    )
    return RunSettings(
        role=role.with_own(*own),
        plan=Plan(
            round0_window=int(ggeur.round0_window),
            quorum=quorum(cfg),
            server_evaluates=server_evaluates(cfg),
            evaluation=evaluation_settings(cfg),
            screen=ggeur.screen,
        ),
        workers=int(ggeur.workers),
        num_threads=int(ggeur.num_threads),
        memory_limit=_memory_limit(ggeur, training.device),
        save_to=cfg.federate.save_to,
        restore_from=cfg.federate.restore_from,
        checkpoint_every=checkpoint_every(cfg.ggeur),
        agreed=agreed,
        tracking=tracking_settings(cfg),
    )


def _memory_limit(ggeur, device: torch.device) -> float:
    """Bytes of sets to keep in the memory of the training device."""
    free = free_memory(device) if ggeur.memory_limit == MEMORY_LIMIT else None
    return ggeur.memory_limit if free is None else GPU_SHARE * free


def checkpoint_every(ggeur) -> float | None:
    """Seconds between checkpoints in the run's folder; None for no checkpoints."""
    return None if ggeur.checkpoint_every == NOT_SET else float(ggeur.checkpoint_every)


def divides_by_domain(cfg) -> bool:
    """Whether every domain is one client, because no setting divides the rows."""
    unsaid = not (
        cfg.federate.client_num or cfg.data.splitter or cfg.data.splitter_args
    )
    return unsaid and cfg.federate.mode == "standalone"


def divides_nothing(cfg) -> bool:
    """Whether this process of a distributed run need not divide rows over clients.

    True for a client with its own data, and for a server that reads no data.
    """
    if cfg.federate.mode != "distributed":
        return False
    distribute = cfg.distribute  # the embedded engine has only keys that are set
    if distribute.get("role", "client") == "server":
        return not (server_evaluates(cfg) or cfg.ggeur.unseen_domains)
    return distribute.get("data_idx", -1) == -1


def server_evaluates(cfg) -> bool:
    """Whether the server scores its own test sets; otherwise every client scores its
    own.

    Without a federation the server has no model to score. If all rows are pooled, the
    server scores, because no client has the test rows of a domain.
    """
    method = base_method(cfg)
    return method.federated and (method.pools_data or cfg.federate.make_global_eval)


def evaluation_settings(cfg) -> EvaluationSettings:
    """The settings of evaluation and early stopping, from FS's keys."""
    stop, report = cfg.early_stop, cfg.eval.report
    # FS reads its metric from the first of these that is reported.
    averages = [name for name in ("weighted_avg", "avg") if name in report]
    return EvaluationSettings(
        tuple(cfg.eval.split),
        cfg.eval.best_res_update_round_wise_key,
        averages[0] if averages else "weighted_avg",
        EarlyStopSettings(
            stop.patience if averages else 0, stop.delta, stop.improve_indicator_mode
        ),
    )


def training_settings(cfg) -> TrainingSettings:
    """The settings of local training, from FS's keys."""
    return TrainingSettings(
        optimizer=local_optimizer(cfg),
        local_update_steps=cfg.train.local_update_steps,
        batch_or_epoch=cfg.train.batch_or_epoch,
        batch_size=cfg.dataloader.batch_size,
        shuffle=cfg.dataloader.shuffle,
        drop_last=cfg.dataloader.drop_last,
        grad_clip=cfg.grad.grad_clip,
        device=training_device(cfg),
        schedule=local_schedule(cfg),
    )


def quorum(cfg) -> int | None:
    """The number of clients that a run needs; None if it needs all clients.

    A run that pools all rows needs all clients.
    """
    everyone = cfg.ggeur.quorum == NOT_SET or base_method(cfg).pools_data
    return None if everyone else int(cfg.ggeur.quorum)


def _unseen_client_num(federate, num_clients: int) -> int:
    """The number of clients that are only scored, by FS's rule.

    At least one client trains.
    """
    rate = federate.unseen_clients_rate
    return min(max(1, int(rate * num_clients)), num_clients - 1) if rate > 0 else 0


def _sample_client_num(federate, num_clients: int) -> int:
    """The number of clients that are drawn in each round, by FS's rule.

    A valid ``sample_client_rate`` counts before ``sample_client_num``. If neither is
    valid, all clients that train are drawn.
    """
    part = max(1, int((1 - federate.unseen_clients_rate) * num_clients))
    if 0 < federate.sample_client_rate <= 1:
        return max(1, int(federate.sample_client_rate * part))
    if 0 < federate.sample_client_num <= num_clients:
        return federate.sample_client_num
    return part


def model_settings(cfg, prepared: Prepared | None = None) -> ModelSettings:
    """The settings of the model that a run trains.

    They come from ``model.dropout`` and from ``ggeur.mlp_hidden_dim``,
    ``ggeur.closed_form`` and those of other models.
    """
    ggeur = cfg.ggeur
    hidden, starts = int(ggeur.mlp_hidden_dim), ggeur.init == "closed_form"
    other = prepared.other if prepared is not None else other_model_of(cfg)
    return ModelSettings(hidden, cfg.model.dropout, ggeur.closed_form, starts, other)


def scored_settings(cfg, prepared: Prepared | None = None) -> ModelSettings:
    """The settings of the model that a run scores and leaves.

    They can differ from the settings of the model that the run trains.
    """
    trained = model_settings(cfg, prepared)
    if trained.other is not None:
        trained = replace(trained, other=trained.other.as_left())
    starts = trained.starts and not keeps_best(cfg.ggeur)
    return replace(trained, starts=starts, averaged=cfg.ggeur.keep == "average")
