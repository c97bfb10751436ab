"""What `ggeur.base_method` asks of other settings, and settles in them."""

from __future__ import annotations

import inspect
import logging

from federatedscope_ggeur.cfg_ggeur import get_key
from federatedscope_ggeur.engines.fs_keys import SERVER_SECTION, settings_in
from federatedscope_ggeur.methods import FedOpt

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
    """What contradicts `ggeur.base_method`, a line each."""
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
    return problems


def _scaffold_problems(optimizer) -> list[str]:
    wrong = [name for name in ("nesterov", "dampening") if optimizer.get(name)]
    if optimizer.type != "SGD":
        return [
            "  train.optimizer.type: must be SGD with ggeur.base_method: scaffold, "
            f"whose control variates count its steps; got {optimizer.type}"
        ]
    return [
        f"  train.optimizer.{name}: cannot be used with ggeur.base_method: scaffold, "
        "whose control variates count plain steps"
        for name in wrong
    ]


def _fedopt_problems(cfg) -> list[str]:
    options = settings_in(get_key(cfg, SERVER_SECTION))
    known = inspect.signature(FedOpt).parameters
    problems = [
        f"  {SERVER_SECTION}.{name}: the server's optimiser takes no such argument; it "
        f"takes {', '.join(known)}"
        for name in options
        if name not in known
    ]
    betas = options.get("betas", (0.9, 0.99))
    is_pair = isinstance(betas, (list, tuple)) and len(betas) == 2
    if not is_pair or not all(_is_below_one(beta) for beta in betas):
        problems.append(
            f"  {SERVER_SECTION}.betas: must be two numbers from 0 to below 1, got "
            f"{betas!r}"
        )
    if not _is_below_one(options.get("momentum", 0.0)):
        problems.append(
            f"  {SERVER_SECTION}.momentum: must be from 0 to below 1, got "
            f"{options['momentum']!r}"
        )
    eps = options.get("eps", 1e-3)
    if not isinstance(eps, float) or eps <= 0:
        problems.append(f"  {SERVER_SECTION}.eps: must be above 0, got {eps!r}")
    return problems


def _is_below_one(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < 1
