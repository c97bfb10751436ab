"""What methods and rivals ask of other settings, and settle in them."""

from __future__ import annotations

import logging
import math

from federatedscope_ggeur.cfg_ggeur import get_key
from federatedscope_ggeur.cfg_ggeur.fs_keys import SERVER_SECTION, settings_in
from federatedscope_ggeur.methods import AUGMENTATIONS, FedOpt

logger = logging.getLogger(__name__)

#: Methods with a section of their own in FederatedScope (FS). `ggeur.base_method` is
#: the one selector; the section's switch follows it.
_SECTIONS = ("fedprox", "fedopt")


def settle_switches(cfg) -> None:
    """Switch on FS's section of the base method, before FS strips unused sections.

    A section that is on although another method is chosen is left to
    `method_problems`.
    """
    name = cfg.ggeur.base_method
    if name in _SECTIONS and name in cfg:
        cfg[name].use = True
        if name == "fedprox" and cfg.fedprox.mu == 0:
            logger.warning("fedprox.mu is 0: fedprox is the same as fedavg then")


def method_problems(cfg) -> list[str]:
    """What contradicts `ggeur.base_method` or a rival, a line each."""
    chosen = cfg.ggeur.base_method
    problems = [
        f"  {section}.use: must be False with ggeur.base_method: {chosen}, which alone "
        "selects the method"
        for section in _SECTIONS
        if section != chosen and section in cfg and cfg[section].use
    ]
    if chosen == "scaffold":
        problems += _scaffold_problems(cfg.train.optimizer)
    if chosen == "fedopt":
        problems += _fedopt_problems(cfg)
    if chosen == "local":
        problems += _local_problems(cfg)
    if chosen == "centralised":
        problems += _centralised_problems(cfg)
    if cfg.ggeur.augmentation in AUGMENTATIONS:
        problems += _rival_problems(cfg)
    return problems


def method_notes(cfg) -> list[str]:
    """What a person might expect otherwise of `ggeur.base_method`, a line each."""
    if cfg.ggeur.base_method == "local" and cfg.federate.make_global_eval:
        return [
            "federate.make_global_eval does not matter with ggeur.base_method: local, "
            "every client scores its own head on its own test rows"
        ]
    return []


def _rival_problems(cfg) -> list[str]:
    ggeur, problems = cfg.ggeur, []
    chosen = f"with ggeur.augmentation: {ggeur.augmentation}"
    if ggeur.closed_form != "none" and ggeur.init == "random":
        problems.append(
            f"  ggeur.closed_form: must be none {chosen}, which acts in training (or "
            "set ggeur.init: closed_form to train from there)"
        )
    if ggeur.augmentation == "fedmix" and ggeur.privacy.min_samples > 1:
        why = (
            f"{chosen} and ggeur.privacy.min_samples {ggeur.privacy.min_samples:g}: "
            "sums over classes less sums over FedMix's means can leave single rows; "
            "take another augmentation, or ggeur.privacy.min_samples 1 to allow that"
        )
        if ggeur.calibrate != "none":
            problems.append(f"  ggeur.calibrate: must be none {why}")
        if ggeur.init == "closed_form":
            problems.append(f"  ggeur.init: must be random {why}")
    return problems


def _local_problems(cfg) -> list[str]:
    ggeur = cfg.ggeur
    nobody = "nobody trains a head for them with ggeur.base_method: local"
    nothing = "there is no global head with ggeur.base_method: local"
    problems = []
    if ggeur.unseen_domains:
        problems.append(f"  ggeur.unseen_domains: must be [], {nobody}")
    if cfg.federate.unseen_clients_rate > 0:
        problems.append(f"  federate.unseen_clients_rate: must be 0.0, {nobody}")
    if ggeur.closed_form != "none":
        problems.append(f"  ggeur.closed_form: must be none, {nothing}")
    if ggeur.calibrate != "none":
        problems.append(f"  ggeur.calibrate: must be none, {nothing}")
    if ggeur.augmentation in AUGMENTATIONS:
        problems.append(
            f"  ggeur.augmentation: {ggeur.augmentation} needs a federation; with "
            "ggeur.base_method: local it must be ggeur or none"
        )
    return problems


def _centralised_problems(cfg) -> list[str]:
    chosen = "with ggeur.base_method: centralised"
    problems = []
    if cfg.federate.mode == "distributed":
        problems.append(
            f"  federate.mode: must be standalone {chosen}, which needs all clients' "
            "data in one process"
        )
    if cfg.federate.unseen_clients_rate > 0:
        problems.append(
            f"  federate.unseen_clients_rate: must be 0.0 {chosen}, where there is one "
            "client"
        )
    return problems


def _scaffold_problems(optimizer) -> list[str]:
    why = "with ggeur.base_method: scaffold, whose control variates count plain steps"
    if optimizer.type != "SGD":
        return [f"  train.optimizer.type: must be SGD {why}; got {optimizer.type}"]
    problems = [
        f"  train.optimizer.{name}: cannot be used {why}"
        for name in ("nesterov", "dampening", "maximize")
        if optimizer.get(name)
    ]
    if not _is_below_one(optimizer.get("momentum", 0.0)):
        problems.append(f"  train.optimizer.momentum: must be below 1 {why}")
    if optimizer.lr == 0:
        problems.append(f"  train.optimizer.lr: must be above 0 {why}")
    return problems


def _fedopt_problems(cfg) -> list[str]:
    kind = get_key(cfg, f"{SERVER_SECTION}.type")
    if kind not in FedOpt.TYPES:
        return []  # which its own rule says
    options = settings_in(get_key(cfg, SERVER_SECTION))
    known = ("type", "lr", *FedOpt.TYPES[kind])
    rules = {
        "betas": (_is_pair, "two numbers from 0 to below 1"),
        "momentum": (_is_below_one, "from 0 to below 1"),
        "eps": (_is_positive, "above 0"),
    }
    problems = [
        f"  {SERVER_SECTION}.{name}: the server's {kind} takes no such argument; it "
        f"takes {', '.join(known)}"
        for name in options
        if name not in known
    ]
    for name in FedOpt.TYPES[kind]:
        fits, wanted = rules[name]
        if name in options and not fits(options[name]):
            problems.append(
                f"  {SERVER_SECTION}.{name}: must be {wanted}, got {options[name]!r}"
            )
    return problems


def _is_pair(value: object) -> bool:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    return is_pair and all(map(_is_below_one, value))


def _is_below_one(value: object) -> bool:
    return _is_number(value) and 0 <= value < 1


def _is_positive(value: object) -> bool:
    return _is_number(value) and 0 < value < math.inf


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
