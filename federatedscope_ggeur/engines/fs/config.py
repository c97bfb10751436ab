"""The plugin's checks of FederatedScope's (FS's) config.

FS merges settings from the file, the command line and the data, and runs every
registered check after each merge. FS's own checks change some values. The command line
may still override a setting of the file. So the plugin checks nothing after the file of
its runs (`_wait_for_command_line`). After other merges it looks only at settings that
FS would change. The data function and the workers call `check` later.

FederatedScope's (FS's) robust aggregation rules in place of FedAvg's mean.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from torch import Tensor

from federatedscope_ggeur.cfg_ggeur import extend_ggeur_cfg, get_key
from federatedscope_ggeur.cfg_ggeur.fs_keys import (
    FS_RULES,
    open_sections,
    written_defaults,
)
from federatedscope_ggeur.cfg_ggeur.load import (
    config_problems,
    settle_defaults,
    unsettle_defaults,
)
from federatedscope_ggeur.cfg_ggeur.method_settings import settle_switches
from federatedscope_ggeur.cfg_ggeur.plugins import asks_for_the_plugin, settings_of
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    divides_by_domain,
    divides_nothing,
)
from federatedscope_ggeur.cfg_ggeur.yaml_file import literal, read_yaml
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method, Update
from federatedscope_ggeur.models import named_tensors
from federatedscope_ggeur.printable import Lines, get_logger

from ..sites.roles import identity_problems

#: Each rule's argument in `aggregator.BFT_args`, and m: with h hostile clients it needs
#: m h + 3 clients; 0: any number.
RULES = {
    "krum": ("krum_agg_num", 2),
    "median": ("", 2),
    "trimmedmean": ("trimmedmean_excluded_ratio", 2),
    "bulyan": ("", 4),
    "normbounding": ("normbounding_norm_bound", 0),
}


def least_clients(cfg) -> int:
    """The least number of clients that ``aggregator.robust_rule`` needs."""
    per_hostile = RULES[cfg.aggregator.robust_rule][1]
    return per_hostile * cfg.aggregator.byzantine_node_num + 3 if per_hostile else 1


def robust_problems(cfg) -> list[str]:
    """The problems of ``aggregator.robust_rule``, each as a line.

    FS itself finds them late and does not name the key.
    """
    rule, hostile = cfg.aggregator.robust_rule, cfg.aggregator.byzantine_node_num
    if rule not in RULES:
        return []
    lines, argument = [], RULES[rule][0]
    given = f"aggregator.robust_rule: {rule}"
    # The rule guards the mean of models, and nothing else that clients send.
    guarded = {
        "base_method": [
            name for name, part in METHODS.present().items() if part.robust
        ],
        "augmentation": AUGMENTATIONS.taken,
        "closed_form": ["none"],
        "calibrate": ["none"],
    }
    for name, allowed in guarded.items():
        value = get_key(cfg, f"ggeur.{name}")
        if value not in allowed:
            lines.append(
                f"  aggregator.robust_rule: {rule} works only with ggeur.{name}: "
                f"{' or '.join(allowed)}, got {value}"
            )
    if argument and argument not in cfg.aggregator.BFT_args:
        lines.append(
            f"  aggregator.BFT_args.{argument}: must be set in the file with {given}"
        )
    needed = least_clients(cfg)
    if cfg.federate.client_num < needed:
        lines.append(
            f"  federate.client_num: must be {needed} at least with {given} and "
            f"aggregator.byzantine_node_num: {hostile}"
        )
    if rule == "bulyan" and not 0 < cfg.federate.sample_client_rate <= 1:
        lines.append(
            f"  federate.sample_client_rate: must be in (0, 1] with {given}, which "
            "counts by it"
        )
    return lines


class RobustFedAvg(Method):
    """FedAvg with an FS aggregator in place of the mean, such as krum or median.

    FS's robust aggregators take differences from their own model and return weights.

    Parameters
    ----------
    aggregator : federatedscope.core.aggregators.Aggregator
    least : int
        The least number of updates that the aggregator needs.
    """

    def __init__(self, aggregator, least: int):
        self._aggregator, self._least = aggregator, least

    def step(self, params: Tensor, updates: Sequence[Update], state, context):
        model = context.model
        before = named_tensors(model, params)
        # FS asks its model for nothing else.
        self._aggregator.model = SimpleNamespace(state_dict=lambda: before)
        feedback = [
            (
                update.aggregation_weight,
                {
                    name: t.clone()
                    for name, t in named_tensors(model, update.params - params).items()
                },
            )
            for update in updates
            if update.aggregation_weight
        ]
        if not feedback:
            return params, {}
        if len(feedback) < self._least:
            raise GGEURError(
                f"round {context.round_number}: {len(feedback)} updates, but "
                f"aggregator.robust_rule needs at least {self._least} with this "
                "aggregator.byzantine_node_num; bring the missing clients back "
                "(ggeur.quorum sets how many must be present), or draw more clients "
                "in each round"
            )
        result = self._aggregator.aggregate({"client_feedback": feedback})
        merged = params.clone()
        for name, part in named_tensors(model, merged).items():
            part.copy_(result[name])
        return merged, {}


logger = get_logger(__name__)

#: Settings that FS's checks change, or that `_Merge` changes to pass these checks. They
#: are set back afterwards: `check` must see what the user asked for, and FS would keep
#: its value if a later override changes the number of clients.
_REWRITTEN = {
    "federate": ("client_num", "sample_client_num", "process_num"),
    "data": ("splitter",),
    "model": ("type",),
    "trainer": ("type",),
}


class _Merge:
    """Wraps FS's checks at the end of a merge, to act before and after them."""

    def __init__(self):
        self._asked: list[tuple[str, str, object]] = []
        self._settled: list[str] = []

    def before(self, cfg) -> None:
        # If the plugin was registered first, FS's own checks come after ours.
        checks = cfg.__cfg_check_funcs__
        checks.append(checks.pop(checks.index(self.after)))
        if not cfg.ggeur.use:
            unsettle_defaults(cfg, self._settled)
            return
        self._asked = [
            (section, name, cfg[section][name])
            for section, names in _REWRITTEN.items()
            for name in names
        ]
        lines = problems(cfg)
        if divides_by_domain(cfg):
            # FS refuses this splitter for data that are not its own.
            cfg.federate.client_num, cfg.data.splitter = 1, "iid"
        elif not lines and divides_nothing(cfg):
            cfg.data.splitter = cfg.data.splitter or "iid"
        if lines:
            self._speak_first(cfg, lines)

    def _speak_first(self, cfg, lines: list[str]) -> None:
        """If FS's checks will fail, first raise an error that lists all problems.

        FS's own error names only one problem, and often without its key.
        """
        copy = cfg.clone()
        try:
            for fs_check in cfg.__cfg_check_funcs__:
                if fs_check not in (self.before, self.after):
                    fs_check(copy)
        except Exception as error:  # whatever FS makes of a value it was not made for
            raise _refusal(lines) from error

    def after(self, cfg) -> None:
        if not cfg.ggeur.use:
            return
        for section, name, value in self._asked:
            # Without a GPU FS writes 0 here. It means the same to FS.
            if (name, value) != ("process_num", 1):
                cfg[section][name] = value
        settle_switches(cfg)
        self._settled += settle_defaults(cfg)


def extend_config(cfg) -> None:
    """Add the `ggeur.*` keys and the plugin's checks to FS's config."""
    extend_ggeur_cfg(cfg)
    _wait_for_command_line(type(cfg))
    merge = _Merge()
    cfg.__cfg_check_funcs__.insert(0, merge.before)
    cfg.register_cfg_check_fun(merge.after)


def _wait_for_command_line(kind: type) -> None:
    """Delay the checks of a plugin's file until the command line is merged.

    `kind` is FS's class of configs. FS's mains merge the file, then the command line,
    and check after each. A setting that is missing in the file may still come, such as
    a role or the number of clients. A file that does not exist may be a bundled
    config's name.
    """
    merge = kind.merge_from_file
    if getattr(merge, "waits", False):
        return

    def merge_from_file(cfg, cfg_filename, check_cfg=True):
        given: list[tuple[str, object]] = []
        with suppress(ConfigError):  # FS says that there is no such file
            cfg_filename = find_config(cfg_filename)
        with suppress(Exception):  # FS's own runs go on; it says what is wrong itself
            given += read_yaml(cfg_filename)
            given += settings_of(sys.argv[1:])
        if not asks_for_the_plugin(given):
            return merge(cfg, cfg_filename, check_cfg)
        if lines := list(written_defaults(given)):
            raise _refusal(lines)
        checks = list(cfg.__cfg_check_funcs__)
        cfg.__cfg_check_funcs__.clear()
        try:
            return merge(cfg, cfg_filename, check_cfg)
        finally:
            cfg.__cfg_check_funcs__.extend(checks)

    merge_from_file.waits = True  # type: ignore[attr-defined]
    kind.merge_from_file = merge_from_file
    merge_list = kind.merge_from_list

    def merge_from_list(cfg, cfg_list, check_cfg=True):
        _add_new_keys(cfg, cfg_list)
        return merge_list(cfg, cfg_list, check_cfg)

    kind.merge_from_list = merge_from_list


def _add_new_keys(cfg, pairs) -> None:
    """Add keys of a command line to sections that take new keys, such as the options of
    an optimiser. FS itself adds only those of files.
    """
    for key, value in zip(pairs[::2], pairs[1::2]):
        section, _, name = str(key).rpartition(".")
        if section in open_sections():
            node = get_key(cfg, section)
            if name not in node:
                node[name] = literal(value)


def check(cfg) -> None:
    """Refuse all settings that the plugin cannot honour in FS, in one error.

    Raises
    ------
    ConfigError
        The error has one line for each key.
    """
    if lines := problems(cfg):
        raise _refusal(lines)


def problems(cfg) -> list[str]:
    """The problems that `check` raises, each as a line."""
    if not cfg.ggeur.use:
        ours = cfg.federate.method.lower() == "ggeur"
        if ours or cfg.data.type.lower().endswith("@ggeur"):
            return [
                "  ggeur.use: must be True with federate.method: ggeur or a data.type "
                "of the plugin"
            ]
        return []
    lines = [
        f"  {name}: {problem}"
        for name, rule in FS_RULES.items()
        if (problem := rule(_value(cfg, name)))
    ]
    lines += identity_problems(cfg) + robust_problems(cfg) + _search_problems()
    return lines + config_problems(cfg, on_fs=True)


def _search_problems() -> list[str]:
    """The problem of a run that FS's hpo.py makes, as a line."""
    package = sys.modules.get("federatedscope")
    if package is None or package.__file__ is None:
        return []
    program = Path(package.__file__).resolve().with_name("hpo.py")
    if Path(sys.argv[0]).resolve() != program:
        return []
    return ["  hpo.py: cannot search over runs of the plugin; take `ggeur study`"]


def _refusal(lines: list[str]) -> ConfigError:
    return ConfigError(Lines(["wrong settings:", *lines]))


def _value(cfg, name: str):
    """A key's value; None if FS has removed its unused section."""
    try:
        return get_key(cfg, name)
    except KeyError:
        return None
