"""The method that a config selects, and its settings."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.extras import manifests
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.augmentation.keys import AugmentationKeys
from federatedscope_ggeur.federation.exchanges.base import (
    due_exchanges,
    plugin_exchanges,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingKeys
from federatedscope_ggeur.federation.steps import plugin_steps
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method, build_method
from federatedscope_ggeur.models import OTHER_MODELS, chosen_other

from .demands import demands_of
from .fs_keys import open_sections, section_of, settings_in, switch_of
from .keys import all_keys, get_key, read
from .transform import preparing


def base_method(cfg) -> type[Method]:
    """The class of the method that ``ggeur.base_method`` names."""
    return METHODS.find(read(cfg.ggeur, TrainingKeys).base_method)


def parts_in_use(cfg) -> list[type[Method]]:
    """The classes of the base method and, if it is used, the baseline augmentation."""
    parts = (
        METHODS.get(read(cfg.ggeur, TrainingKeys).base_method),
        AUGMENTATIONS.get(read(cfg.ggeur, AugmentationKeys).augmentation),
    )
    return [part for part in parts if part is not None]


def part_settings(cfg, part: type[Method]) -> dict:
    """The settings of `part` in `cfg`, in the form that its constructor takes.

    If FS takes new keys in the part's section, all settings there are included.
    """
    keys = {key.name: key for key in part.SETTINGS}
    if not keys:
        return {}
    section = section_of(part)
    node, values = get_key(cfg, section), {}
    for name in settings_in(node):
        if name in keys:
            values[name] = keys[name].read(get_key(node, name))
        elif section in open_sections():
            values[name] = node[name]
    return values


def method_of(cfg) -> Method:
    """Make the base method, combined with the baseline augmentation if there is one."""
    base, *added = (part_settings(cfg, part) for part in parts_in_use(cfg))
    name = read(cfg.ggeur, TrainingKeys).base_method
    augmentation = read(cfg.ggeur, AugmentationKeys).augmentation
    return build_method(name, augmentation, *added, **base)


def run_notes(cfg, run: Demands, validates: bool | None = None) -> list[str]:
    """Facts about a run that may surprise a user, one line each.

    `validates` says whether there are rows for validation; None if nobody knows.
    """
    # Without rounds nothing can stop early, and FS's default asks for it.
    notes = _method_notes(cfg, run)
    return [*notes, *(_evaluation_notes(cfg, validates) if run.trains else ())]


def _evaluation_notes(cfg, validates: bool | None) -> Iterator[str]:
    key, patience = cfg.eval.best_res_update_round_wise_key, cfg.early_stop.patience
    split = key.partition("_")[0]
    if key == "val_loss" and not patience:
        return  # FS's default, not a choice of the user
    if split == "val" and cfg.data.splits[1] == 0:
        why = "data.splits keeps no rows for validation"
    elif split == "val" and validates is False:
        why = "the data has no rows for validation"
    elif split not in cfg.eval.split:
        why = f"eval.split does not hold {split}"
    elif patience and not {"weighted_avg", "avg"} & set(cfg.eval.report):
        why = "eval.report holds neither weighted_avg nor avg"
    elif 0 < patience < cfg.federate.total_round_num // max(cfg.eval.freq, 1):
        yield (
            f"early_stop ends the run once {patience} evaluated rounds in a row have "
            f"no better {key}; early_stop.patience 0 runs all rounds"
        )
        return
    else:
        return
    inert = f", so early_stop.patience {patience} does nothing" if patience else ""
    yield f"there is no {key} ({why}){inert}"


def _method_notes(cfg, run: Demands) -> list[str]:
    notes = [
        f"{section_of(part)}.{name} {note}"
        for part in parts_in_use(cfg)
        for name, note in part.setting_notes(part_settings(cfg, part))
    ]
    notes += _picture_notes(run, parts_in_use(cfg)) if run.image_model else []
    if not base_method(cfg).federated and cfg.federate.make_global_eval:
        notes.append(
            "federate.make_global_eval has no effect with ggeur.base_method: "
            f"{base_method(cfg).name}: every client scores its own model on its own "
            "test rows"
        )
    return notes


def _picture_notes(run: Demands, parts: list[type[Method]]) -> list[str]:
    least = run.min_samples
    return [
        f"{part.name} sends to all clients the means of a few pictures of one client "
        f"(at least ggeur.privacy.min_samples {least}). Such a mean is a blurred "
        "picture that shows what these pictures have in common"
        for part in parts
        if part.sends_row_means
    ]


def settle_switches(cfg) -> None:
    """Switch on FS's section of the method, before FS removes unused sections.

    Only ``ggeur.base_method`` selects the method, and the section's switch follows it.
    The checks refuse a switch that is on although another method is selected.
    """
    for part in parts_in_use(cfg):
        switch = switch_of(part)
        if switch and switch in cfg:
            cfg[switch].use = True


def agreed_settings(cfg, run: Demands | None = None) -> dict[str, str]:
    """The settings in `cfg` that must be the same in every process, as texts by key.

    `run` has the facts of a run with `cfg`, if somebody has worked them out.
    """
    shared = [key.name for key in all_keys() if key.shared]
    used = preparing(cfg)
    for extra in manifests().values():
        if extra.prepares is not None and extra is not used:
            shared = [name for name in shared if name not in extra.own_names]
    names = ["seed", *(f"ggeur.{name}" for name in shared)]
    settings = {name: get_key(cfg, name) for name in names}
    run = run or demands_of(cfg)
    for room in due_exchanges(run):
        settings.update((setting(name), v) for name, v in room.agreed(run).items())
    for part in parts_in_use(cfg):
        for name, value in part_settings(cfg, part).items():
            settings[f"{section_of(part)}.{name}"] = value
    form = run.form
    for section in [] if form is None else [*form.READS, form.name]:
        if section in cfg.ggeur:
            for name, value in settings_in(cfg.ggeur[section]).items():
                settings[f"ggeur.{section}.{name}"] = value
    asked = [part.name for part in plugin_exchanges(run)]
    if asked:
        settings["ggeur.plugins (exchanges)"] = ", ".join(asked)
    taken = plugin_steps(run)
    if taken:
        settings["ggeur.plugins (steps)"] = ", ".join(taken)
    other = chosen_other(run)
    for name, value in OTHER_MODELS[other].agreed(run).items() if other else ():
        settings[setting(name)] = value
    # As a config shows it: lists, not tuples.
    return {
        name: str(list(value) if isinstance(value, tuple) else value)
        for name, value in settings.items()
    }


def options_of(part, ggeur) -> dict[str, object]:
    """The settings of a reader or encoder, in the form that it takes."""
    return {k.name: k.read(ggeur[part.name][k.name]) for k in part.SETTINGS}
