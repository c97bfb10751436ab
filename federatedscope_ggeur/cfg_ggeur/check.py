"""Which settings cannot be, alone or together."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.fs_keys import (
    OPEN_SECTION,
    section_of,
    settings_in,
    switch_of,
    switches,
)
from federatedscope_ggeur.cfg_ggeur.keys import all_keys, get_key
from federatedscope_ggeur.cfg_ggeur.method_settings import part_settings, parts_in_use
from federatedscope_ggeur.cfg_ggeur.privacy_keys import privacy_problems
from federatedscope_ggeur.cfg_ggeur.secure_sums import (
    SECURE_SUMS_KEYS,
    secure_sums_problems,
)
from federatedscope_ggeur.cfg_ggeur.statistics_form import statistics_problems
from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.federation import OptimizerSettings
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.models import CLOSED_FORMS, build_closed_form
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import NOT_SET, number_problem

_TOTALS = ("step1_size", "step2_size")
_OF_THE_HEAD = {
    *(
        "closed_form",
        "init",
        "keep",
        "statistics",
        "geometry",
        "calibrate",
        "mlp_hidden_dim",
    ),
    "space",
}
_OF_SUMS = {key.name for key in SECURE_SUMS_KEYS} | {
    *("privacy.min_samples", "steps", "prototypes", "screen", "augmentation"),
    "base_method",
}
_TARGET = ("target_size_per_class",)
_PER_ANCHOR = ("num_generated_per_sample", "num_generated_per_prototype", *_TARGET)
#: The keys that each rule of `ggeur.sizes` takes.
_SIZES = {"paper": _TOTALS, "release": (*_TOTALS, *_TARGET), "document": _PER_ANCHOR}


def check_ggeur_cfg(cfg) -> None:
    """Refuse wrong `ggeur.*` settings.

    Raises
    ------
    ConfigError
        One line for each wrong or contradictory key.
    """
    problems = ggeur_problems(cfg)
    if problems:
        indented = (f"  {problem}" for problem in problems)
        raise ConfigError(Lines(["wrong settings:", *indented]))


def ggeur_problems(cfg) -> list[str]:
    """What `check_ggeur_cfg` would complain of, each ``"<key>: <problem>"``."""
    ggeur, ours = cfg.ggeur, cfg.federate.method == "ggeur"
    if not ggeur.use:
        # FS strips the other keys of a section that is not in use.
        return ["ggeur.use: must be True with federate.method: ggeur"] if ours else []
    values = [(key, get_key(ggeur, key.name)) for key in all_keys()]
    problems = [
        f"ggeur.{key.name}: {problem}"
        for key, value in values
        if (problem := number_problem(value) or key.rule(value))
    ]
    wrong = {problem.partition(":")[0].removeprefix("ggeur.") for problem in problems}
    if "plugins" not in wrong:
        problems += (
            f"ggeur.plugins: the module '{name}' is not loaded; name it in the file "
            "of --cfg or behind it, where it is seen before the config is built"
            for name in ggeur.plugins
            if name not in sys.modules
        )
    if not ours:
        problems.append(
            "federate.method: must be ggeur with ggeur.use: True, got "
            f"{cfg.federate.method!r}"
        )
    if wrong & {*_OF_THE_HEAD, "steps"}:
        demands = None
    else:
        demands = demands_of(cfg)
        problems += _head_contradictions(ggeur, demands)
        problems += _form_contradictions(ggeur, wrong)
    if demands is not None and not wrong & _OF_SUMS:
        problems += secure_sums_problems(cfg, demands)
        problems += privacy_problems(ggeur, demands.own_statistics)
    if not wrong & {"sizes", *_TOTALS, *_PER_ANCHOR, "steps"}:
        problems += _size_contradictions(ggeur)
    return problems


def _head_contradictions(ggeur, demands: Demands) -> Iterator[str]:
    """What cannot go with a head in closed form, or without one."""
    kind, starts = ggeur.closed_form, ggeur.init == "closed_form"
    form = CLOSED_FORMS.get(kind)
    if starts and form is None:
        others = [name for name, other in CLOSED_FORMS.items() if other.trainable]
        yield (
            f"ggeur.init: closed_form needs ggeur.closed_form: {' or '.join(others)}"
        )
    if starts and form is not None and not form.trainable:
        yield (
            f"ggeur.init: cannot be closed_form with ggeur.closed_form: {kind}, whose "
            "head is not one that training goes on with"
        )
    if form is not None and ggeur.mlp_hidden_dim != 0:
        yield (
            f"ggeur.mlp_hidden_dim: must be 0 with ggeur.closed_form: {kind}, which "
            "has no hidden layer"
        )
    if ggeur.keep == "best":
        yield from _keep_contradictions(ggeur)
    yield from statistics_problems(ggeur, demands)
    if demands.calibrates and not demands.trains:
        yield (
            "ggeur.calibrate: must be none with a head in closed form that is not "
            "trained (ggeur.init: random)"
        )


def _keep_contradictions(ggeur) -> Iterator[str]:
    """What cannot go with the better of two heads."""
    if ggeur.init != "closed_form":
        yield "ggeur.keep: best needs ggeur.init: closed_form, which gives two heads"
    if ggeur.calibrate != "none":
        yield (
            "ggeur.keep: must be trained with ggeur.calibrate, which makes a head of "
            "the trained one"
        )
    base = METHODS.get(ggeur.base_method)
    if base is not None and base.personal:
        yield (
            f"ggeur.keep: must be trained with ggeur.base_method: {base.name}, in "
            "which every client has a head of its own"
        )


def sizes_rule(ggeur) -> str:
    """Which rule ``ggeur.sizes`` is: "paper", "release" or "document"."""
    if ggeur.sizes != "auto":
        return ggeur.sizes
    return "document" if _given(ggeur, _PER_ANCHOR) else "paper"


def _given(ggeur, names: Sequence[str]) -> list[str]:
    return [f"ggeur.{name}" for name in names if ggeur[name] != NOT_SET]


def _form_contradictions(ggeur, wrong: set[str]) -> Iterator[str]:
    """What the chosen closed form finds in its settings, where none is `wrong`."""
    form = CLOSED_FORMS.get(ggeur.closed_form)
    if form is None or {key.split(".")[0] for key in wrong} & {form.name, *form.READS}:
        return
    try:
        build_closed_form(form.name, ggeur)
    except ConfigError as error:
        yield str(error)


def _size_contradictions(ggeur) -> Iterator[str]:
    totals, per_anchor = _given(ggeur, _TOTALS), _given(ggeur, _PER_ANCHOR)
    if ggeur.sizes != "auto":
        takes = _SIZES[ggeur.sizes]
        others = [n for n in (*_TOTALS, *_PER_ANCHOR) if n not in takes]
        for name in _given(ggeur, others):
            yield (
                f"{name}: cannot go with ggeur.sizes: {ggeur.sizes}, which takes "
                f"{', '.join(takes)}; set it to -1"
            )
        return
    if totals and per_anchor:
        yield (
            f"{' and '.join(totals)}: cannot go with {' and '.join(per_anchor)}; say "
            "by ggeur.sizes which rule is meant"
        )
    for step, name in enumerate(_PER_ANCHOR[:2], start=1):
        if per_anchor and step in ggeur.steps and ggeur[name] == NOT_SET:
            yield (
                f"ggeur.{name}: must be set, because {' and '.join(per_anchor)} is set "
                f"and ggeur.steps holds {step}; or say by ggeur.sizes which rule is "
                "meant"
            )


def method_problems(cfg) -> Iterator[str]:
    """What contradicts the base method or the baseline augmentation, likewise."""
    parts = parts_in_use(cfg)
    chosen = {switch_of(part) for part in parts}
    for switch in switches():
        if switch not in chosen and switch in cfg and cfg[switch].use:
            yield (
                f"{switch}.use: must be False with ggeur.base_method: "
                f"{cfg.ggeur.base_method}, which alone selects the method"
            )
    for part in parts:
        yield from _setting_problems(cfg, part)
        for field, problem in part.optimizer_problems(local_optimizer(cfg)):
            yield f"{OPEN_SECTION}.{field}: {problem}"
    base = METHODS.get(cfg.ggeur.base_method)
    if base is not None and not base.federated:
        yield from _local_problems(cfg)
    yield from _evaluation_problems(cfg)
    if base is not None and base.pools_data:
        yield from _pooled_problems(cfg)
    added = AUGMENTATIONS.get(cfg.ggeur.augmentation)
    if added is not None:
        yield from _augmentation_problems(cfg.ggeur, demands_of(cfg), added)


def check_embedding_dim(cfg, dim: int) -> None:
    """Refuse embeddings of other dimensions than ``ggeur.embedding_dim`` says.

    Raises
    ------
    ConfigError
        They have `dim` others.
    """
    wanted = cfg.ggeur.embedding_dim
    if wanted not in (NOT_SET, dim):
        raise ConfigError(
            f"ggeur.embedding_dim: is {wanted:g}, but the embeddings of data.type "
            f"{cfg.data.type} have {dim} dimensions; set it to {dim} or take the line "
            "out"
        )


def given_handshake(ggeur) -> dict[str, object]:
    """What the settings alone say of the data, by fields of a `Handshake`."""
    found: dict[str, object] = {}
    if ggeur.embedding_dim != NOT_SET:
        found["dim"] = int(ggeur.embedding_dim)
    if ggeur.agreed.class_names:
        found["class_names"] = tuple(ggeur.agreed.class_names)
    if ggeur.agreed.encoder:
        found["encoder"] = ggeur.agreed.encoder
    return found


def check_agreed(cfg, class_names: Sequence[str], encoder: str) -> None:
    """Refuse data that are not what ``ggeur.agreed`` says.

    Raises
    ------
    ConfigError
        Their classes or their encoder are others.
    """
    agreed = cfg.ggeur.agreed
    held = (("class_names", list(class_names)), ("encoder", encoder))
    for name, there in held:
        if agreed[name] and agreed[name] != there:
            raise ConfigError(
                f"ggeur.agreed.{name}: is {shown(agreed[name], 300)}, but the data of "
                f"data.type {cfg.data.type} say {shown(there, 300)}"
            )


def local_optimizer(cfg) -> OptimizerSettings:
    """The optimiser of ``train.optimizer``."""
    options = settings_in(cfg.train.optimizer)
    kind, lr = (get_key(cfg.train.optimizer, name) for name in ("type", "lr"))
    return OptimizerSettings(
        kind, lr, {k: v for k, v in options.items() if k not in ("type", "lr")}
    )


def _setting_problems(cfg, part: type[Method]) -> Iterator[str]:
    """Of settings in a section of FederatedScope's the optional ones, and of all what
    the part itself finds."""
    given = part_settings(cfg, part)
    for key in part.SETTINGS:
        if key.default is None and key.name in given:
            value = given[key.name]
            problem = number_problem(value) or key.rule(value)
            if problem:
                yield f"{section_of(part)}.{key.name}: {problem}"
    for name, problem in part.setting_problems(given):
        yield f"{section_of(part)}.{name}: {problem}"


def _augmentation_problems(
    ggeur, demands: Demands, added: type[Method]
) -> Iterator[str]:
    chosen = f"with ggeur.augmentation: {added.name}"
    if not demands.trains:
        yield (
            f"ggeur.closed_form: must be none {chosen}, which acts in training (or "
            "set ggeur.init: closed_form to train from there)"
        )
    if added.sends_row_means and ggeur.privacy.min_samples > 1:
        why = (
            f"{chosen} and ggeur.privacy.min_samples {ggeur.privacy.min_samples:g}: "
            f"sums over classes less sums over the means of {added.name} can leave "
            "single rows; take another augmentation, or ggeur.privacy.min_samples 1 to "
            "allow that"
        )
        if ggeur.calibrate != "none":
            yield f"ggeur.calibrate: must be none {why}"
        if ggeur.init == "closed_form":
            yield f"ggeur.init: must be random {why}"
        if ggeur.space == "whitened":
            yield f"ggeur.space: must be standard or raw {why}"


def _evaluation_problems(cfg) -> Iterator[str]:
    key, patience = cfg.eval.best_res_update_round_wise_key, cfg.early_stop.patience
    if key.startswith("test_") and patience:
        yield (
            f"early_stop.patience: must be 0 with eval.best_res_update_round_wise_key: "
            f"{key}, got {patience!r}: test rows may not decide when a run ends; or "
            "set the key to val_loss"
        )


def _local_problems(cfg) -> Iterator[str]:
    ggeur = cfg.ggeur
    chosen = f"with ggeur.base_method: {ggeur.base_method}"
    nobody = f"nobody trains a model for them {chosen}"
    nothing = f"there is no global model {chosen}"
    if ggeur.unseen_domains:
        yield f"ggeur.unseen_domains: must be [], {nobody}"
    if cfg.federate.unseen_clients_rate > 0:
        yield f"federate.unseen_clients_rate: must be 0.0, {nobody}"
    if ggeur.closed_form != "none":
        yield f"ggeur.closed_form: must be none, {nothing}"
    if ggeur.calibrate != "none":
        yield f"ggeur.calibrate: must be none, {nothing}"
    if ggeur.augmentation in AUGMENTATIONS:
        yield (
            f"ggeur.augmentation: {ggeur.augmentation} needs a federation; {chosen} it "
            "must be ggeur or none"
        )


def _pooled_problems(cfg) -> Iterator[str]:
    chosen = f"with ggeur.base_method: {cfg.ggeur.base_method}"
    if cfg.federate.mode == "distributed":
        yield (
            f"federate.mode: must be standalone {chosen}, which needs all clients' "
            "data in one process"
        )
    if cfg.federate.unseen_clients_rate > 0:
        yield (
            f"federate.unseen_clients_rate: must be 0.0 {chosen}, where there is one "
            "client"
        )
