"""Load and check a config of FS's keys and the plugin's, for the embedded engine.

The module `fs_keys` has the keys of FederatedScope (FS) that are honoured or refused.
This module has FS's other keys, which do nothing here, since a YAML file of FS may hold
them on any engine. A config of the embedded engine has such a key only if somebody sets
it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from yacs.config import CfgNode

from federatedscope_ggeur.data import (
    NO_TRANSFORM,
    EncoderSettings,
    check_encoder,
    check_splits,
    find_reader,
    read_arguments,
)
from federatedscope_ggeur.errors import ConfigError, did_you_mean, shown
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.federation import OptimizerSettings
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import Rule, flatten, number_problem, rule_of

from .check import contradictions, local_optimizer
from .fs_keys import (
    OPEN_SECTION,
    STANDS_FOR,
    FSKey,
    anything,
    fs_keys,
    open_sections,
    table,
    written_defaults,
)
from .keys import (
    PLUGINS,
    add_key,
    all_keys,
    extend_ggeur_cfg,
    get_key,
    put_key,
    removed_key,
)
from .method_settings import settle_switches
from .plugins import check_loaded, load_plugins, plugins_in
from .run_settings import (
    divides_by_domain,
    divides_nothing,
    encoder_settings,
    schedule_problems,
)
from .transform import check_transform, row_transform
from .yaml_file import literal, read_yaml, to_plain

#: What to use instead of some keys without effect.
_INSTEAD = {
    "data.args": "the settings of a reader are below ggeur",
    "data.transform": "the encoder prepares its images itself",
    "dataloader.num_workers": "use ggeur.encoder.num_workers, for decoding images",
    "distribute.grpc_compression": "parameters hardly shrink",
    "trainer.disp_freq": "each round is said",
    "trainer.val_freq": "use eval.freq, in rounds",
    "trainer.sam.rho": "use ggeur.base_method fedsam and ggeur.fedsam.rho",
    "model.hidden": "use ggeur.mlp_hidden_dim, the number of hidden units",
}


def _former(name: str, default: object) -> Rule:
    renamed = {"data.loader": "dataloader.type"}
    now = renamed.get(name, name.replace("data", "dataloader"))
    return rule_of(f"is called {now} now", lambda value: value == default)


def _here_only(default: object) -> Rule:
    problem = f"the embedded engine takes only {default!r}"
    return rule_of(problem, lambda value: value == default)


_IDLE = dict(table("idle"))

#: Every key of FS that `fs_keys` lacks, except keys in sections that take new keys.
OTHER_KEYS = {
    key.name: key
    for key in (
        *(FSKey(name, default, anything) for name, default in _IDLE.items()),
        *(FSKey(name, default, anything) for name, default in table("inert")),
        *(FSKey(n, default, _here_only(default)) for n, default in table("on_fs_only")),
        *(FSKey(n, default, _former(n, default)) for n, default in table("former")),
        FSKey("model.input_shape", (), anything),
    )
}


def settle_defaults(cfg) -> list[str]:
    """Replace FS's default model, criterion and trainer by the plugin's own ones.

    Returns
    -------
    list of str
        The keys that were changed.
    """
    changed = [n for n, (fs, _) in STANDS_FOR.items() if get_key(cfg, n) == fs]
    for name in changed:
        put_key(cfg, name, STANDS_FOR[name][1])
    return changed


def unsettle_defaults(cfg, names: Iterable[str]) -> None:
    """Restore FS's defaults for the keys `names`.

    This is for a config in which the plugin was switched off later.
    """
    for name in names:
        default, ours = STANDS_FOR[name]
        if get_key(cfg, name) == ours:
            put_key(cfg, name, default)


def idle_notes(cfg) -> list[str]:
    """A note on settings that have no effect here but differ from FS's defaults."""
    idle = []
    for name, default in _IDLE.items():
        try:
            value = get_key(cfg, name)
        except KeyError:
            continue
        if name == "data.transform" and row_transform(cfg) != NO_TRANSFORM:
            continue
        if value != default:
            instead = _INSTEAD.get(name)
            idle.append(f"{name} ({instead})" if instead else name)
    return [f"these settings have no effect here: {', '.join(idle)}"] if idle else []


_LISTED = 25  # problems in one message
_HINT = "'ggeur configs' lists configs to start from."


def default_config() -> CfgNode:
    """A config with every key that the embedded engine knows, at its default."""
    cfg = CfgNode()
    for key in fs_keys():
        add_key(cfg, key.name, key.default)
    extend_ggeur_cfg(cfg)
    return cfg


def load_config(
    source: str | Path | Mapping | None = None,
    overrides: Sequence | Mapping = (),
    *,
    on_fs: bool = False,
    beside: Path | None = None,
) -> CfgNode:
    """Load settings from `source`, replace some by `overrides`, and check the config.

    Parameters
    ----------
    source : str, path, mapping or CfgNode, optional
        The path of a YAML file; or the name of a bundled example, with or without
        ``.yaml``; or settings as a nested dict; or a config, which is copied. None for
        the defaults.
    overrides : sequence or mapping
        ``["federate.total_round_num", "5", ...]``, as on the command line, or
        ``{"federate.total_round_num": 5}``. Texts are read as Python literals.
    on_fs : bool
        Whether to accept settings that only FS's engines can honour, such as
        distributed mode.
    beside : path, optional
        A folder to look for plugins in, before the folder of the file.

    Raises
    ------
    ConfigError
        The file cannot be read, or settings are wrong. The message has a line for each
        problem: an unknown key, a wrong type, a value that this engine cannot honour,
        or a contradiction.
    """
    given, where = read_settings(source, overrides, beside)
    cfg = default_config()
    unset = {key: p for key, value in given if (p := set_key(cfg, key, value))}
    problems = [f"  {key:.100}: {problem}" for key, problem in unset.items()]
    # A key that could not be set has its default, which the user did not choose.
    others = config_problems(cfg, on_fs)
    problems += (p for p in others if p.partition(":")[0].strip() not in unset)
    problems += written_defaults(given)
    if problems:
        place = f" in {where}" if where is not None else ""
        place += " or behind it" if place and overrides else ""
        more = len(problems) - _LISTED
        if more > 0:
            problems[_LISTED:] = [f"  and {more} more"]
        hint = [_HINT] if where is not None else []
        raise ConfigError(Lines([f"wrong settings{place}:", *problems, *hint]))
    settle_switches(cfg)
    settle_defaults(cfg)
    cfg.freeze()
    return cfg


def read_settings(
    source: str | Path | Mapping | None = None,
    overrides: Sequence | Mapping = (),
    beside: Path | None = None,
) -> tuple[list[tuple[str, object]], Path | None]:
    """Read keys (with dots) and values for `load_config`, without checking them.

    Plugins that a file or `overrides` name are loaded. Plugins that a mapping names
    must be loaded already, since the mapping may come from another person's results.

    Returns
    -------
    settings : list of (str, object)
    path : path or None
        The file of the settings, if there is one.

    Raises
    ------
    ConfigError
        The file cannot be read, a plugin cannot be loaded, or a mapping names a plugin
        that is not loaded.
    """
    where = find_config(source) if isinstance(source, (str, Path)) else None
    if where is None and not isinstance(source, (Mapping, type(None))):
        raise ConfigError(
            "a config must be a path, the name of a bundled example, a dict or a "
            f"config, got {shown(source)}"
        )
    given = [*(flatten(source or {}) if where is None else read_yaml(where))]
    said = [*_pairs(overrides)]
    if where is None and not plugins_in(said):
        check_loaded([*given, *said])
        load_plugins()
    else:
        # Before all keys are known, since plugins bring keys.
        named = plugins_in([*given, *said])
        load_plugins(named, beside, where and where.parent)
    return [*_without_fallen(given, said), *said], where


#: Settings of one encoder, which mean nothing to another one.
_OF_ENCODER = tuple(f"ggeur.encoder.{n}" for n in ("model", "pretrained", "quick_gelu"))


def _without_fallen(
    given: Sequence[tuple[str, object]], said: Sequence[tuple[str, object]]
) -> list[tuple[str, object]]:
    """The settings of a file, less those that fall with another encoder behind it."""
    name = "ggeur.encoder.name"
    before, after = dict(given).get(name, EncoderSettings.name), dict(said).get(name)
    if after in (None, before):
        return [*given]
    return [(key, value) for key, value in given if key not in _OF_ENCODER]


def _pairs(overrides: Sequence | Mapping) -> Iterator[tuple[str, object]]:
    if isinstance(overrides, Mapping):
        return flatten(overrides)
    if isinstance(overrides, str):
        raise ConfigError(
            "settings over a config must be a dict, or a list of keys and values, got "
            f"the text {shown(overrides)}"
        )
    keys, values = overrides[::2], overrides[1::2]
    joined = [key for key in keys if "=" in key]
    if joined or len(keys) > len(values):
        culprit = joined[0] if joined else keys[-1]
        raise ConfigError(
            f"{culprit!r} has no value; write settings behind the file as KEY VALUE "
            "pairs, without '='"
        )
    return zip(keys, values)


def config_problems(cfg: CfgNode, on_fs: bool = False) -> list[str]:
    """List the problems of `cfg`, one line each.

    With `on_fs` the settings are checked for FS's engines, otherwise for the embedded
    engine.
    """
    each = {key.name: _problem(key, cfg, on_fs) for key in fs_keys()}
    problems = [f"{name}: {problem}" for name, problem in each.items() if problem]
    problems += _own_problems(cfg.ggeur)
    if not cfg.ggeur.use and cfg.federate.method == "ggeur":
        problems.append("ggeur.use: must be True with federate.method: ggeur")
    checks = (
        lambda: find_reader(cfg.data.type),
        lambda: cfg.ggeur.use and check_encoder(encoder_settings(cfg.ggeur)),
        lambda: check_splits(cfg.data.splits),
        lambda: _check_splitter(cfg),
        lambda: check_transform(cfg),
    )
    problems += filter(None, map(_refusal, checks))
    problems += _optimizer_problems(local_optimizer(cfg))
    if cfg.federate.client_num == 0 and not divides_by_domain(cfg):
        problems.append(
            "federate.client_num: must be set with data.splitter or federate.mode: "
            "distributed; without both there is one client for each domain"
        )
    problems += schedule_problems(cfg)
    wrong = {problem.partition(":")[0] for problem in problems}
    others = contradictions(cfg, wrong)
    problems += (p for p in others if p.partition(":")[0] not in wrong)
    return [f"  {problem}" for problem in problems]


def _own_problems(ggeur: CfgNode) -> Iterator[str]:
    """Yield the problems of single `ggeur.*` keys, each as ``"<key>: <problem>"``."""
    for key in all_keys():
        value = get_key(ggeur, key.name)
        if problem := number_problem(value) or key.rule(value):
            yield f"ggeur.{key.name}: {problem}"
    if PLUGINS.rule(ggeur.plugins):
        return
    for name in ggeur.plugins:
        if name not in sys.modules:
            yield (
                f"ggeur.plugins: the module '{name}' is not loaded; name it in the "
                "file of --cfg or behind it on the command line, so that it is loaded "
                "before the config is built"
            )


def _check_splitter(cfg: CfgNode) -> None:
    if cfg.data.splitter or not (divides_by_domain(cfg) or divides_nothing(cfg)):
        read_arguments(cfg.data.splitter, cfg.data.splitter_args)


def _problem(key: FSKey, cfg: CfgNode, on_fs: bool) -> str:
    try:
        value = get_key(cfg, key.name)
    except KeyError:
        return ""  # FS removes all other keys of a section whose `use` is False
        # FS itself accepts a list in place of a whole number.
    if type(value) is not type(key.default):
        return not_of_type(value, key.default)
    rule = key.on_fs if on_fs and key.on_fs is not None else key.rule
    return number_problem(value) or rule(value)


def not_of_type(value: object, default: object) -> str:
    """The problem of a value whose type differs from the type of its key's default."""
    wanted = type(default).__name__
    return f"expected {wanted}, got {type(value).__name__} {shown(value)}"


def _refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""


def set_key(cfg: CfgNode, dotted: str, value: object) -> str:
    """Set one key of `cfg`; return the problem with the key or value, or ""."""
    section, _, name = dotted.rpartition(".")
    other = OTHER_KEYS.get(dotted)
    if other is not None:
        add_key(cfg, dotted, other.default)
    try:
        node = get_key(cfg, section) if section else cfg
    except (KeyError, TypeError):
        node = None
    is_open = section in open_sections()
    if not isinstance(node, CfgNode) or (name not in node and not is_open):
        known = [name for name, _ in flatten(to_plain(cfg))]
        near = did_you_mean(dotted, known, 0.75)
        return removed_key(dotted) or f"the embedded engine has no such key{near}"
    value = _of_python(value)
    is_text = isinstance(value, str) and isinstance(node.get(name), str)
    read = literal(value)
    # A text may be in quotes; FS needs them if it looks like a number.
    value = value if is_text and not isinstance(read, str) else read
    if problem := number_problem(value):
        return problem
    if is_open and dotted not in {key.name for key in fs_keys()}:
        node[name] = value
        return ""
    if isinstance(node[name], CfgNode):
        if value == {}:
            return ""
        return f"is a section; set keys below it, got {shown(value)}"
    cast = _cast(value, node[name])
    if type(cast) is not type(node[name]):
        return not_of_type(value, node[name])
    node[name] = cast
    return other.rule(cast) if other is not None else ""


def _of_python(value: object) -> object:
    """Convert numpy's numbers, texts and arrays, as grids have them, to Python's."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_of_python, value))
    return value


def _cast(value: object, default: object) -> object:
    """Convert `value` to the type of `default`, if FS does so and no fraction is lost.

    A value that cannot be converted is returned unchanged.
    """
    pair = (type(value), type(default))
    if pair == (int, float):
        return float(value)
    if pair == (float, int) and value.is_integer():
        return int(value)
    if pair in ((tuple, list), (list, tuple)):
        return type(default)(value)
    return value


#: Options for which torch accepts every value from 0 to below 1.
_HARMLESS = {"momentum", "weight_decay", "dampening", "eps"}


def _optimizer_problems(own: OptimizerSettings) -> list[str]:
    """The problems of options that the torch optimiser does not have or refuses."""
    make, options = getattr(torch.optim, own.type, None), own.options
    if make is None:
        return []
    known = set(inspect.signature(make).parameters) - {"params", "lr"}
    unknown = sorted(options.keys() - known)
    if unknown:
        return [
            f"{OPEN_SECTION}.{name}: torch.optim.{own.type} has no such argument; "
            "remove it from the file"
            for name in unknown
        ]
    wrong = {name: number_problem(value) for name, value in options.items()}
    if any(wrong.values()):
        return [f"{OPEN_SECTION}.{name}: {p}" for name, p in wrong.items() if p]
    if options.keys() <= _HARMLESS and all(
        isinstance(value, (int, float)) and 0 <= value < 1 for value in options.values()
    ):
        return []  # making a torch optimiser costs every process 2 s of imports
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    try:
        make([parameter], lr=own.lr, **options).step()
    except Exception as error:  # torch raises anything for options it cannot use
        return [f"{OPEN_SECTION}: torch refuses {options}: {error}"]
    return []
