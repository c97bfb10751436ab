"""Turn a checked config into the frozen settings that lower packages take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from federatedscope_ggeur import federation
from federatedscope_ggeur.data import (
    ENCODERS,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    validation_share,
)
from federatedscope_ggeur.data.rows import NOT_KNOWN, Given
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.coordinator import Plan
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.augmentation.keys import set_settings
from federatedscope_ggeur.federation.exchanges.base import RunFacts, due_exchanges
from federatedscope_ggeur.federation.exchanges.calibration import calibration_settings
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.closed_form.keys import ClosedFormKeys
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EvaluationKeys
from federatedscope_ggeur.federation.exchanges.space import SpaceKeys
from federatedscope_ggeur.federation.exchanges.statistics.keys import (
    StatisticsKeys,
    statistics_form,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    RoundSettings,
    TrainingKeys,
)
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.machine import free_memory
from federatedscope_ggeur.models import ModelSettings, two_kinds
from federatedscope_ggeur.models.build import LARGEST_GRADIENT
from federatedscope_ggeur.settings import not_negative, positive_share, whole

from .check import local_optimizer
from .demands import closed_form_of, demands_of, other_model_of
from .fs_keys import SCHEDULER_SECTION, distributed, settings_in
from .keys import DistributedKeys, RunKeys, read
from .method_settings import agreed_settings, base_method, method_of, options_of
from .transform import expected_rows
from .yaml_file import plain_config


def training_device(cfg) -> torch.device:
    """The device on which models are trained and scored.

    It is the CPU without ``use_gpu``, or if torch sees no GPU (see `device_notes`).
    Otherwise it is the GPU with the number ``device``. A negative number means the GPU
    with the most free memory, as in FS.

    Raises
    ------
    ConfigError
        There is no GPU with this number.
    """
    if not cfg.use_gpu or not torch.cuda.is_available():
        return torch.device("cpu")
    number, count = cfg.device, torch.cuda.device_count()
    if number >= count:
        raise ConfigError(
            f"device: there is no GPU {number}, torch sees {count}; take a number from "
            f"0 to {count - 1}, or -1 for the GPU with the most free memory"
        )
    if number < 0:
        number = max(range(count), key=lambda n: torch.cuda.mem_get_info(n)[0])
    return torch.device("cuda", number)


def use_threads(cfg) -> None:
    """Give torch the threads of ``ggeur.num_threads``, for the rest of the process."""
    torch.set_num_threads(read(cfg.ggeur, RunKeys).num_threads)


def gpu_name(device: torch.device) -> str | None:
    """The name of a GPU; None for the CPU."""
    return None if device.type == "cpu" else torch.cuda.get_device_name(device)


def encoder_device(cfg) -> str:
    """The device that ``ggeur.encoder.device: auto`` stands for.

    It is the GPU for training if training uses one, and otherwise "auto".
    """
    device = training_device(cfg)
    return "auto" if device.type == "cpu" else str(device)


def device_notes(cfg) -> list[str]:
    """A warning, in FS's words, if ``use_gpu`` is on but there is no GPU."""
    if not cfg.use_gpu or torch.cuda.is_available():
        return []
    return ["No GPU found for your device, set cfg.use_gpu=False"]


#: The settings of each schedule, with torch's defaults and with rules. The value 0 of
#: T_max stands for the number of rounds. The value 0 of first_rate (the rate of round
#: 1) means that round 1 has no rate of its own.
_TAKES = {
    "StepLR": {"step_size": (10, whole(1)), "gamma": (0.1, positive_share)},
    "CosineAnnealingLR": {
        "T_max": (0, whole(1)),
        "eta_min": (0.0, not_negative),
        "first_rate": (0.0, not_negative),
    },
}


def local_schedule(cfg) -> federation.StepSchedule | federation.CosineSchedule | None:
    """The schedule of ``train.scheduler``; None for a constant rate."""
    node = cfg.train.scheduler
    if not node.type:
        return None
    given = {n: node.get(n, value) for n, (value, _) in _TAKES[node.type].items()}
    if node.type == "StepLR":
        return federation.StepSchedule(int(given["step_size"]), float(given["gamma"]))
    period = int(given["T_max"]) or cfg.federate.total_round_num
    return federation.CosineSchedule(
        period, float(given["eta_min"]), float(given["first_rate"])
    )


def schedule_problems(cfg) -> Iterator[str]:
    """Yield the problems of the keys in ``train.scheduler``, except of ``type``."""
    kind = cfg.train.scheduler.type
    takes = _TAKES.get(kind, _TAKES["StepLR"])
    for name, value in settings_in(cfg.train.scheduler).items():
        if name in ("type", "warmup_ratio"):
            continue
        if name not in takes:
            *others, last = takes
            yield (
                f"{SCHEDULER_SECTION}.{name}: the plugin's {kind or 'StepLR'} takes "
                f"{', '.join(others)} and {last}, in rounds"
            )
        elif problem := takes[name][1](value):
            yield f"{SCHEDULER_SECTION}.{name}: {problem}"


def experiment_name(cfg) -> str:
    """FS's name for an experiment: `expname`, or a name made of main settings."""
    name = cfg.expname or (
        f"{cfg.federate.method}_{cfg.model.type}_on_{cfg.data.type}"
        f"_lr{cfg.train.optimizer.lr}_lstep{cfg.train.local_update_steps}"
    )
    return f"{name}_{cfg.expname_tag}" if cfg.expname_tag else name


#: The share of a GPU's free memory that kept sets may take.
GPU_SHARE = 0.6


@dataclass(frozen=True)
class RunSettings:
    """The settings that an engine needs to set up a run and to run its rounds."""

    role: federation.RoleSettings
    plan: Plan
    workers: int
    num_threads: int
    memory_limit: float
    save_to: str
    restore_from: str
    checkpoint_every: float | None
    agreed: Mapping[str, str]

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
    demands = demands_of(cfg)
    own = demands.of(RunKeys)
    drawn = _sample_client_num(cfg.federate, num_clients)
    pull = prepared.pull if prepared else None
    rounds = demands.of(RoundSettings, sample_client_num=drawn, pull=pull)
    training, agreed = training_settings(cfg), agreed_settings(cfg, demands)
    model = model_settings(cfg, prepared)
    is_mlp = model.averaged and model.hidden_units(dim, num_classes) > 0
    if is_mlp and training.grad_clip < 0:
        training = replace(training, grad_clip=LARGEST_GRADIENT)
    scored = scored_settings(cfg, model)
    task = federation.Task(
        num_classes=num_classes,
        dim=dim,
        model=model,
        method=method_of(cfg),
        seed=cfg.seed,
        statistics=statistics_form(demands),
        pooled_geometry=demands.pooled_geometry,
        # Another model takes rows as they are.
        space=demands.of(SpaceKeys).space if model.other is None else "raw",
        scored=scored if two_kinds(scored, model) else None,
        counted_prototypes=demands.only_totals,
    )
    statistics = demands.of(StatisticsKeys)
    parts: list[object] = [
        statistics,
        # Draws make most means with a one-shot head worse.
        set_settings(demands, averaged=model.averaged),
        rounds,
    ]
    form = closed_form_of(cfg.ggeur, prepared.known if prepared else None)
    if form is not None:
        parts.append(ClosedFormSettings(form))
    if demands.calibrates:
        parts.append(calibration_settings(demands, training))
    expected = expected_rows(cfg, class_names, encoder, given, demands)
    config = plain_config(cfg)
    facts = RunFacts(demands, num_classes, dim, expected, agreed, config)
    made = [part.settings_of(facts) for part in due_exchanges(demands)]
    parts += [one for one in made if one is not None]
    role = federation.RoleSettings(
        task,
        demands,
        training,
        min_samples=demands.min_samples,
        eval_every=cfg.eval.freq,
        unseen_client_num=_unseen_client_num(cfg.federate, num_clients),
        ignore_weight=cfg.federate.ignore_weight,
        max_share=rounds.max_share,
        mix=prepared.mix if prepared else None,
    )
    return RunSettings(
        role=role.with_own(*parts),
        plan=Plan(
            round0_window=statistics.round0_window,
            quorum=quorum(cfg),
            server_evaluates=server_evaluates(cfg),
            evaluation=evaluation_settings(cfg),
            screen=own.screen,
        ),
        workers=rounds.workers,
        num_threads=own.num_threads,
        memory_limit=_memory_limit(own, training.device),
        save_to=cfg.federate.save_to,
        restore_from=cfg.federate.restore_from,
        checkpoint_every=own.checkpoint_every,
        agreed=agreed,
    )


def _memory_limit(own: RunKeys, device: torch.device) -> float:
    """Bytes of sets to keep in the memory of the training device."""
    is_default = own.memory_limit == RunKeys.memory_limit
    free = free_memory(device) if is_default else None
    return own.memory_limit if free is None else GPU_SHARE * free


def held_for_validation(cfg) -> float:
    """The share of its training rows that a client sets aside (`validation_share`).

    Raises
    ------
    ConfigError
        Some are set aside under differential privacy.
    """
    share = validation_share(cfg.data.splits)
    if share and demands_of(cfg).noisy:
        raise ConfigError(
            "data.splits: the second number must be 0 under differential privacy: one "
            "row more would change which other rows a client sets aside"
        )
    return share


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
    if distributed(cfg, "role") == "server":
        unseen = read(cfg.ggeur, EvaluationKeys).unseen_domains
        return not (server_evaluates(cfg) or unseen)
    return distributed(cfg, "data_idx") == -1


def server_evaluates(cfg) -> bool:
    """Whether the server scores its own test sets; otherwise every client scores its
    own.

    Without a federation the server has no model to score. If all rows are pooled, the
    server scores, because no client has the test rows of a domain.
    """
    method = base_method(cfg)
    return method.federated and (method.pools_data or cfg.federate.make_global_eval)


def evaluation_settings(cfg) -> federation.EvaluationSettings:
    """The settings of evaluation and early stopping, from FS's keys."""
    stop, key = cfg.early_stop, cfg.eval.best_res_update_round_wise_key
    # FS reads its metric from the first of these that is reported.
    averages = [name for name in ("weighted_avg", "avg") if name in cfg.eval.report]
    patience = stop.patience if averages else 0
    mode = stop.improve_indicator_mode
    early_stop = federation.EarlyStopSettings(patience, stop.delta, mode)
    average = averages[0] if averages else "weighted_avg"
    splits = tuple(cfg.eval.split)
    return federation.EvaluationSettings(splits, key, average, early_stop)


def training_settings(cfg) -> federation.TrainingSettings:
    """The settings of local training, from FS's keys."""
    return federation.TrainingSettings(
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
    if base_method(cfg).pools_data:
        return None
    return read(cfg.ggeur, DistributedKeys).quorum


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
    head = read(cfg.ggeur, ClosedFormKeys)
    other = prepared.other if prepared is not None else other_model_of(cfg)
    return ModelSettings(
        read(cfg.ggeur, TrainingKeys).mlp_hidden_dim,
        cfg.model.dropout,
        head.closed_form,
        head.init == "closed_form",
        other,
        averaged=head.keep == "average",
    )


def scored_settings(cfg, trained: ModelSettings) -> ModelSettings:
    """The settings of the model that a run scores and leaves.

    They can differ from those of the model that the run trains, `trained`.
    """
    if trained.other is not None:
        trained = replace(trained, other=trained.other.as_left())
    starts = trained.starts and not read(cfg.ggeur, ClosedFormKeys).keeps_best
    return replace(trained, starts=starts)


def encoder_settings(ggeur) -> EncoderSettings:
    """The settings of the encoder in `cfg.ggeur`."""
    part = ENCODERS.get(read(ggeur, EncoderSettings).name)
    options = options_of(part, ggeur) if part is not None else {}
    return replace(read(ggeur, EncoderSettings), options=options)


def encoding_settings(ggeur, auto: str = "auto") -> EncodingSettings:
    """The settings of encoder, extraction and cache in `cfg.ggeur`.

    `auto` names the device that ``ggeur.encoder.device: auto`` stands for.
    """
    own = read(ggeur, EncodingSettings)
    return replace(
        own,
        encoder=encoder_settings(ggeur),
        extraction=read(ggeur, ExtractionSettings),
        device=auto if own.device == "auto" else own.device,
    )
