"""From a checked config to the frozen settings that the rooms below take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from federatedscope_ggeur.cfg_ggeur.check import local_optimizer, sizes_rule
from federatedscope_ggeur.cfg_ggeur.devices import training_device
from federatedscope_ggeur.cfg_ggeur.method_settings import (
    agreed_settings,
    base_method,
    method_of,
)
from federatedscope_ggeur.cfg_ggeur.networks import network_settings, trained_space
from federatedscope_ggeur.cfg_ggeur.schedule import local_schedule
from federatedscope_ggeur.cfg_ggeur.secure_sums import sum_settings, sums_on
from federatedscope_ggeur.cfg_ggeur.statistics_form import statistics_form
from federatedscope_ggeur.cfg_ggeur.text_settings import (
    text_mix,
    text_model,
    text_pull,
)
from federatedscope_ggeur.cfg_ggeur.tracking import tracking_settings
from federatedscope_ggeur.federation import (
    CalibrationSettings,
    ClientSettings,
    EarlyStopSettings,
    EvaluationSettings,
    ServerSettings,
    Task,
    TrainingSettings,
)
from federatedscope_ggeur.federation.course.plan import Plan
from federatedscope_ggeur.federation.course.requests import (
    CALIBRATE,
    INIT_BROADCAST,
    KINDS,
    LEAVE_ONE_OUT,
    PREPARE,
    STATISTICS,
    SUM_KEYS,
    SUM_KINDS,
    TOTALS,
    TRAIN,
    RequestKind,
)
from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    PerAnchorSizes,
    ReleaseSizes,
    Sizes,
    SpaceSettings,
    TotalSizes,
)
from federatedscope_ggeur.methods import METHODS
from federatedscope_ggeur.models import (
    ClosedForm,
    ModelSettings,
    build_closed_form,
    two_kinds,
)
from federatedscope_ggeur.models.text import ClassTexts
from federatedscope_ggeur.reporting import TrackingSettings
from federatedscope_ggeur.settings import NOT_SET

#: The paper's sizes: 2000 with step 1 alone, 500 and 500 with both (Section 3.2).
SINGLE_DOMAIN_SIZE, MULTI_DOMAIN_SIZE, PROTOTYPE_SIZE = 2000, 500, 500
#: The published code's for Digits, and the number that the plugin document recommends.
RELEASE_TARGET, PER_ANCHOR = 2000, 50
#: In step 2 around the one mean of all other clients.
OTHERS_SIZE = 600


@dataclass(frozen=True)
class RunSettings:
    """All that an engine needs to set up the roles and run the rounds."""

    client: ClientSettings
    server: ServerSettings
    plan: Plan
    num_threads: int
    memory_limit: float
    save_to: str
    restore_from: str
    checkpoint_every: float | None
    agreed: Mapping[str, str]
    answers: frozenset[RequestKind]
    tracking: TrackingSettings

    @property
    def rounds(self) -> int:
        return self.server.total_rounds


def run_settings(
    cfg,
    num_classes: int,
    dim: int,
    num_clients: int,
    text: ClassTexts | None = None,
) -> RunSettings:
    """The settings in `cfg` for data of `num_classes` and `dim`, on any engine; `text`
    is what `engines.text` has made of the classes' names."""
    ggeur, steps = cfg.ggeur, augmentation_steps(cfg.ggeur)
    sizes, closed_form = _sizes(ggeur, steps), _closed_form(ggeur, text)
    form = statistics_form(ggeur)
    method, training = method_of(cfg), training_settings(cfg)
    pooled = ggeur.geometry == "pooled"
    space = SpaceSettings(trained_space(ggeur), ggeur.whitened.shrinkage)
    model, scored = model_settings(cfg, text), scored_settings(cfg, text)
    task = Task(
        *(num_classes, dim, model, method, cfg.seed, form, pooled, space),
        scored=scored if two_kinds(scored, model) else None,
        summed=sums_on(ggeur),
    )
    sums = sum_settings(
        *(cfg, num_classes, dim, agreed_settings(cfg)),
        sends_shape=bool(steps) or _trains_in(ggeur) == "whitened",
        needs_scatter=bool(steps)
        or _trains_in(ggeur) != "raw"
        or (closed_form is not None and closed_form.NEEDS != "means"),
    )
    client = ClientSettings(
        task,
        augmentation=AugmentationSettings(steps, sizes, ggeur.scale, ggeur.noise),
        training=training,
        min_samples=int(ggeur.privacy.min_samples),
        weight=ggeur.weight,
        sends_statistics=STATISTICS in answered_requests(ggeur),
        closed_form=closed_form,
        scored=tuple(cfg.eval.split),
        text_pull=text_pull(ggeur, text),
        sums=sums,
        train_withheld=ggeur.privacy.train_withheld,
        float32_means=ggeur.privacy.float32_means,
    )
    server = ServerSettings(
        task,
        steps=steps,
        prototypes=ggeur.prototypes,
        sample_client_num=_sample_client_num(cfg.federate, num_clients),
        unseen_client_num=_unseen_client_num(cfg.federate, num_clients),
        ignore_weight=cfg.federate.ignore_weight,
        total_rounds=0 if only_closed_form(ggeur) else cfg.federate.total_round_num,
        eval_every=cfg.eval.freq,
        closed_form=closed_form,
        keeps_best=keeps_best(ggeur),
        calibration=_calibration(ggeur, training),
        device=training.device,
        rate=training.optimizer.lr,
        max_share=ggeur.max_share,
        counts_own_rows=ggeur.weight != "augmented",
        text_mix=text_mix(ggeur, text),
        sums=sums,
    )
    return RunSettings(
        client=client,
        server=server,
        plan=Plan(
            round0_window=int(ggeur.round0_window),
            quorum=quorum(cfg),
            server_evaluates=server_evaluates(cfg),
            evaluation=evaluation_settings(cfg),
            screen=ggeur.screen,
        ),
        num_threads=int(ggeur.num_threads),
        memory_limit=ggeur.memory_limit,
        save_to=cfg.federate.save_to,
        restore_from=cfg.federate.restore_from,
        checkpoint_every=checkpoint_every(cfg.ggeur),
        agreed=agreed_settings(cfg),
        answers=answered_requests(ggeur),
        tracking=tracking_settings(cfg),
    )


def checkpoint_every(ggeur) -> float | None:
    """Seconds between checkpoints in the run's folder; None where there are none."""
    return None if ggeur.checkpoint_every == NOT_SET else float(ggeur.checkpoint_every)


def divides_by_domain(cfg) -> bool:
    """Whether every domain is one client: nobody said how many, or how to divide."""
    unsaid = not (
        cfg.federate.client_num or cfg.data.splitter or cfg.data.splitter_args
    )
    return unsaid and cfg.federate.mode == "standalone"


def divides_nothing(cfg) -> bool:
    """Whether this process of a distributed run divides no rows: a client with data of
    its own, or a server that reads none."""
    if cfg.federate.mode != "distributed":
        return False
    distribute = cfg.distribute  # on the embedded engine only what is set is there
    if distribute.get("role", "client") == "server":
        return not (server_evaluates(cfg) or cfg.ggeur.unseen_domains)
    return distribute.get("data_idx", -1) == -1


def server_evaluates(cfg) -> bool:
    """Whether the server scores its own test sets; else every client scores its own.

    Without a federation there is no model that a server could score, and where one
    client holds all rows none with test rows of a domain.
    """
    method = base_method(cfg)
    return method.federated and (method.pools_data or cfg.federate.make_global_eval)


def evaluation_settings(cfg) -> EvaluationSettings:
    """Evaluation and early stopping in FS's keys."""
    stop, report = cfg.early_stop, cfg.eval.report
    # FS looks its key up in the first of these that is reported.
    averages = [name for name in ("weighted_avg", "avg") if name in report]
    return EvaluationSettings(
        tuple(cfg.eval.split),
        cfg.eval.best_res_update_round_wise_key,
        averages[0] if averages else "weighted_avg",
        EarlyStopSettings(
            stop.patience if averages else 0, stop.delta, stop.improve_indicator_mode
        ),
    )


def _calibration(ggeur, training: TrainingSettings) -> CalibrationSettings | None:
    """How the head is calibrated after the last round, if at all."""
    if ggeur.calibrate == "none":
        return None
    samples, epochs = int(ggeur.ccvr.samples), int(ggeur.ccvr.epochs)
    return CalibrationSettings(samples, epochs, training)


def _closed_form(ggeur, text: ClassTexts | None = None) -> ClosedForm | None:
    """The head in closed form of ``ggeur.closed_form``, as a start where it is one."""
    if ggeur.closed_form == "none":
        return None
    form = build_closed_form(ggeur.closed_form, ggeur)
    if text is not None and (form.needs_text or text.prior or text.ensemble):
        form = form.knowing(text)
    alone = only_closed_form(ggeur) or keeps_best(ggeur)
    return form if alone else form.as_start()


def training_settings(cfg) -> TrainingSettings:
    """Local training in FS's keys."""
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


def _sizes(ggeur, steps: tuple[int, ...]) -> Sizes:
    """The rule of ``ggeur.sizes`` with its numbers."""

    def number(name: str, default: int) -> int:
        return default if ggeur[name] == NOT_SET else int(ggeur[name])

    rule, target = sizes_rule(ggeur), "target_size_per_class"
    has_target = ggeur[target] != NOT_SET
    if rule == "document":
        return PerAnchorSizes(
            number("num_generated_per_sample", PER_ANCHOR),
            number("num_generated_per_prototype", PER_ANCHOR),
            int(ggeur[target]) if has_target else None,
        )
    single_domain = steps == (1,)
    papers = single_domain and rule == "paper"
    step1 = number("step1_size", SINGLE_DOMAIN_SIZE if papers else MULTI_DOMAIN_SIZE)
    # One prototype takes the place of many, see keys.
    one = ggeur.prototypes == "others"
    step2 = number("step2_size", OTHERS_SIZE if one else PROTOTYPE_SIZE)
    if rule == "paper" or (single_domain and not has_target):
        return TotalSizes(step1, step2)
    return ReleaseSizes(step1, step2, number(target, RELEASE_TARGET))


def quorum(cfg) -> int | None:
    """Clients that must be there; None: all, as where one holds all rows."""
    everyone = cfg.ggeur.quorum == NOT_SET or base_method(cfg).pools_data
    return None if everyone else int(cfg.ggeur.quorum)


def _unseen_client_num(federate, num_clients: int) -> int:
    """Clients that are only scored, as FS counts them; never all of them."""
    rate = federate.unseen_clients_rate
    return min(max(1, int(rate * num_clients)), num_clients - 1) if rate > 0 else 0


def _sample_client_num(federate, num_clients: int) -> int:
    """Clients drawn each round, as FS reads its keys: the rate wins, else the number,
    and all that take part where neither is valid."""
    part = max(1, int((1 - federate.unseen_clients_rate) * num_clients))
    if 0 < federate.sample_client_rate <= 1:
        return max(1, int(federate.sample_client_rate * part))
    if 0 < federate.sample_client_num <= num_clients:
        return federate.sample_client_num
    return part


def model_settings(cfg, text: ClassTexts | None = None) -> ModelSettings:
    """The model of ``ggeur.mlp_hidden_dim``, ``ggeur.closed_form``, ``ggeur.network``
    or ``ggeur.text.model``."""
    ggeur = cfg.ggeur
    hidden, starts = int(ggeur.mlp_hidden_dim), ggeur.init == "closed_form"
    network = network_settings(ggeur)
    form, ensemble = ggeur.closed_form, bool(ggeur.text.ensemble)
    dropout, model = cfg.model.dropout, text_model(ggeur, text)
    return ModelSettings(hidden, dropout, form, starts, network, ensemble, model)


def scored_settings(cfg, text: ClassTexts | None = None) -> ModelSettings:
    """The kind of model that is scored and left."""
    trained = model_settings(cfg, text)
    if trained.text is not None:
        return replace(trained, text=replace(trained.text, left=True))
    return replace(trained, starts=trained.starts and not keeps_best(cfg.ggeur))


def augmentation_steps(ggeur) -> tuple[int, ...]:
    """The steps of GGEUR in `cfg.ggeur`: none where something else stands for it."""
    used = ggeur.augmentation == "ggeur" and not only_closed_form(ggeur)
    return tuple(ggeur.steps) if used else ()


def answered_requests(ggeur) -> frozenset[RequestKind]:
    """What a client of these settings answers."""
    answered = {kind for kind in KINDS if kind.always}
    if only_closed_form(ggeur):
        answered -= {PREPARE, INIT_BROADCAST, TRAIN}
    federated = METHODS.find(ggeur.base_method).federated
    form = _closed_form(ggeur)
    trains_in = _trains_in(ggeur)
    if (
        augmentation_steps(ggeur)
        or (form is not None and form.asks)
        or (federated and trains_in == "whitened")
    ):
        answered.add(STATISTICS)
    if trains_in != "raw" and (federated or STATISTICS in answered):
        answered.add(TOTALS)
    if form is not None and form.is_open:
        answered.add(LEAVE_ONE_OUT)
    if ggeur.calibrate != "none":
        answered.add(CALIBRATE)
    if sums_on(ggeur) and STATISTICS in answered:
        answered -= {STATISTICS, TOTALS, LEAVE_ONE_OUT}
        answered |= {SUM_KEYS, *SUM_KINDS.values()}
    return frozenset(answered)


def asks_for_statistics(ggeur) -> bool:
    """Whether clients are asked for class statistics at all."""
    return bool(answered_requests(ggeur) & {STATISTICS, CALIBRATE, SUM_KEYS})


def only_closed_form(ggeur) -> bool:
    """Whether the run ends with round 0, at a head in closed form."""
    return ggeur.closed_form != "none" and ggeur.init == "random"


def _trains_in(ggeur) -> str:
    """The space that is trained in; raw where nothing is trained."""
    return "raw" if only_closed_form(ggeur) else trained_space(ggeur)


def keeps_best(ggeur) -> bool:
    """Whether the run leaves the better of the head in closed form and the trained."""
    return ggeur.init == "closed_form" and ggeur.keep == "best"
