"""Derive the facts of a run from its config."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from federatedscope_ggeur import models
from federatedscope_ggeur.data import is_image_type, named_transform
from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.extras import load_extras
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges import EXCHANGES
from federatedscope_ggeur.federation.exchanges.augmentation.keys import AugmentationKeys
from federatedscope_ggeur.federation.exchanges.calibration import CalibrationKeys
from federatedscope_ggeur.federation.exchanges.closed_form.keys import ClosedFormKeys
from federatedscope_ggeur.federation.exchanges.personal import PersonalKeys
from federatedscope_ggeur.federation.exchanges.space import SpaceKeys
from federatedscope_ggeur.federation.exchanges.statistics.keys import StatisticsKeys
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingKeys
from federatedscope_ggeur.methods import METHODS

from .fs_keys import FIXED, HONOURED
from .keys import FS_FIELDS, RunKeys, all_keys, extra_keys, get_key, read

_FS_DEFAULTS = {key.name: key.default for key in HONOURED + FIXED}


def demands_of(cfg, wrong: Collection[str] = ()) -> Demands:
    """The facts of a run with `cfg`; a key in `wrong` counts as its default."""
    chosen = {
        field: default if setting(field) in wrong else value
        for field, value, default in _settings_in(cfg)
    }
    chosen["transform"] = transform = named_transform(listed_transforms(cfg))
    load_extras({**chosen, **{key.name: chosen[key.field] for key in extra_keys()}})
    head, sets = ClosedFormKeys.of(chosen), AugmentationKeys.of(chosen)
    form = models.CLOSED_FORMS.get(head.closed_form)
    trains = form is None or head.init != "random"
    base = METHODS.get(TrainingKeys.of(chosen).base_method)
    is_ggeur = sets.augmentation == "ggeur"
    # Another model takes rows as they are: ggeur.space stays at its default.
    has_space = trains and not models.chosen_other(chosen)
    plugins = RunKeys.of(chosen).plugins
    allowed = EXCHANGES.allowed(plugins)
    stated = {k: v for part in allowed for k, v in part.states(chosen).items()}
    totals = stated.get("brings_totals", False)
    leaves_out = form is not None and form.asks and form.leaves_out() and not totals
    made = _form_of(cfg.ggeur)
    return Demands(
        rounds=chosen["total_rounds"] if trains else 0,
        federated=base is None or base.federated,
        steps=sets.steps if trains and is_ggeur else (),
        space=SpaceKeys.of(chosen).space if has_space else "raw",
        closed_form=form is not None,
        uses_statistics=form is not None and form.asks,
        is_open=made is not None and made.is_open and not totals,
        class_scatters=made is not None and made.takes_class_scatters,
        grain="class" if made is None else made.grain,
        compares_kinds=form is not None and form.by_losses,
        leaves_out=leaves_out,
        is_cooled=head.temperature == "leave_one_out",
        tells_confidence=head.confidences,
        keeps_best=head.keeps_best,
        personal=PersonalKeys.of(chosen).head != "none",
        calibrates=CalibrationKeys.of(chosen).calibrate != "none",
        distributed=_is_distributed(cfg),
        reads_images=_reads_images(cfg),
        plugins=plugins,
        min_samples=StatisticsKeys.of(chosen).min_samples,
        pooled_geometry=sets.geometry == "pooled",
        client_num=chosen["client_num"],
        splits=tuple(chosen["splits"]),
        batch_or_epoch=chosen["batch_or_epoch"],
        best_by=chosen["best_by"],
        transform=transform,
        chosen=chosen,
        **stated,
    )


def listed_transforms(cfg) -> list:
    """The entries of ``data.transform``; [] if there are none."""
    try:
        return list(get_key(cfg, "data.transform"))
    except (KeyError, TypeError):  # another check reports what is no list
        return []


def _settings_in(cfg) -> Iterator[tuple[str, object, object]]:
    """Yield field, value and default of each setting that lower packages know."""
    for key in all_keys():
        value = get_key(cfg.ggeur, key.name)
        is_default = value is key.in_config
        yield key.field, key.default if is_default else key.read(value), key.default
    for field, name in FS_FIELDS.items():
        yield field, get_key(cfg, name), _FS_DEFAULTS[name]


def other_model_of(cfg) -> models.OtherModel | None:
    """The model that takes a head's place in a run with `cfg`; None for a head."""
    chosen = {field: value for field, value, _ in _settings_in(cfg)}
    name = models.chosen_other(chosen)
    return models.OTHER_MODELS[name].of_run(chosen) if name else None


def _is_distributed(cfg) -> bool:
    # Objects that FS's constructors make do not see the mode, see `for_constructor`.
    used = "distribute" in cfg and bool(cfg.distribute.get("use"))
    return used or cfg.federate.mode == "distributed"


def _reads_images(cfg) -> bool:
    try:
        return is_image_type(cfg.data.type)
    except ConfigError:
        return False  # another check reports it


def closed_form_of(
    ggeur, known: models.Known | None = None
) -> models.ClosedForm | None:
    """The one-shot head of ``ggeur.closed_form``; None if there is none.

    If training only starts from this head, it is returned as a start. `known` is what
    the run knows of its classes.

    Raises
    ------
    ConfigError
        The head's settings are wrong.
    """
    own = read(ggeur, ClosedFormKeys)
    if own.closed_form == "none":
        return None
    form = models.build_closed_form(own.closed_form, ggeur)
    form.statistics = read(ggeur, StatisticsKeys).statistics
    if known is not None:
        form = form.knowing(known)
    is_left = own.init == "random" or own.keeps_best
    return form if is_left else form.as_start()


def _form_of(ggeur) -> models.ClosedForm | None:
    """The one-shot head; None if there is none, or if its settings are wrong."""
    try:
        return closed_form_of(ggeur)
    except ConfigError:
        return None
