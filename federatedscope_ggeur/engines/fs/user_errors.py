"""Shows users' mistakes without a traceback in FederatedScope's (FS's) own main.

FS's main lets every exception through. With this module, errors of the plugin look as
in the `ggeur` command. The same holds for FS's errors while it reads the settings of a
plugin's run. All other errors are unchanged.

Helps to set up both workers inside FederatedScope (FS).
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from federatedscope_ggeur.cfg_ggeur import get_key
from federatedscope_ggeur.cfg_ggeur.keys import removed_key
from federatedscope_ggeur.cfg_ggeur.load import not_of_type
from federatedscope_ggeur.cfg_ggeur.plugins import (
    asks_for_the_plugin,
    settings_of,
    told_of,
)
from federatedscope_ggeur.cfg_ggeur.yaml_file import literal
from federatedscope_ggeur.errors import ConfigError, GGEURError, did_you_mean
from federatedscope_ggeur.federation.exchanges.evaluation.scores import METRICS
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import flatten

from .config import problems

_CONFIGS = ("federatedscope", "core", "configs", "")
_COMMAND_LINE = ("federatedscope", "core", "cmd_args.py")


def install_hook() -> None:
    """Show the error that ends this process by `user_error`.

    The hook is installed only once.
    """
    before = sys.excepthook
    if getattr(before, "is_of_the_plugin", False):
        return

    def show(kind, error, trace) -> None:
        told = user_error(error, sys.argv[1:])
        if told is None:
            before(kind, error, trace)
        else:
            print(f"error: {told}", file=sys.stderr)

    show.is_of_the_plugin = True  # type: ignore[attr-defined]
    sys.excepthook = show


def user_error(error: BaseException, arguments: Sequence[str]) -> GGEURError | None:
    """The error to show in place of `error`; None if it is not a user's mistake.

    Parameters
    ----------
    error : BaseException
    arguments : sequence of str
        The command line of main.py, without the program.
    """
    if isinstance(error, GGEURError):
        return error
    if not isinstance(error, Exception):
        return None
    if told := told_of(error):
        return told
    if not _while_reading_settings(error):
        return None
    try:
        given = settings_of(arguments)
        if not asks_for_the_plugin(given):
            return None
        lines = _wrong_settings(given)
    except ConfigError as unreadable:
        return unreadable if _mentions_the_plugin(arguments) else None
    except Exception:  # an error in here must not hide the error itself
        return None
    words = [
        value
        for _, value in given
        if str(value).startswith("client") and value in arguments
    ]
    if not lines and not (words and _passed_through(error, _COMMAND_LINE)):
        lines = [f"  {_first_line(error)}"]
    if words:
        lines.append(
            "  FederatedScope takes words that begin with 'client' for settings of one "
            f"client; write \"'{words[0]}'\", with both pairs of quotes"
        )
    return ConfigError(Lines(["wrong settings:", *lines]))


def _while_reading_settings(error: BaseException) -> bool:
    """Whether FS raised the error while it read or checked its settings."""
    return _passed_through(error, _CONFIGS) or _passed_through(error, _COMMAND_LINE)


def _passed_through(error: BaseException, place: tuple[str, ...]) -> bool:
    """Whether the error passed through a file of FS.

    `place` is the path's parts. A last part "" stands for any file of the folder.
    """
    *folder, name = place
    for frame in traceback.extract_tb(error.__traceback__):
        *parts, file = PurePath(frame.filename).parts
        if parts[-len(folder) :] == folder and name in ("", file):
            return True
    return False


def _mentions_the_plugin(arguments: Sequence[str]) -> bool:
    """Whether the command line, or a file that it names, contains "ggeur"."""
    texts = list(arguments)
    for word in arguments:
        with suppress(OSError, ValueError):
            texts.append(Path(word).read_text(encoding="utf-8"))
    return any("ggeur" in text for text in texts)


def _wrong_settings(given: Sequence[tuple[str, object]]) -> list[str]:
    """List all settings that FS's config or the plugin refuses."""
    from federatedscope.core.configs.config import global_cfg

    cfg, lines = global_cfg.clone(), []
    for key, value in given:
        if key.startswith("client"):
            continue  # a setting of one client
        if problem := setting_problem(cfg, key, literal(value)):
            lines.append(f"  {key}: {problem}")
    return lines + [line for line in problems(cfg) if line not in lines]


def setting_problem(cfg, key: str, value: object) -> str:
    """Set a key in FS's config; returns why FS refuses, or ""."""
    one = type(cfg)(new_allowed=True)
    *path, name = key.split(".")
    node = one
    for part in path:
        node[part] = type(cfg)(new_allowed=True)
        node = node[part]
    node[name] = value
    try:
        cfg.merge_from_other_cfg(one, check_cfg=False)
    except (KeyError, ValueError, AttributeError, AssertionError, TypeError):
        return _problem(cfg, key, value)
    return ""


def _problem(cfg, key: str, value: object) -> str:
    try:
        default = get_key(cfg, key)
    except (KeyError, TypeError):
        if gone := removed_key(key):
            return gone
        known = [name for name, _ in flatten(cfg) if "__" not in name]
        return f"there is no such key{did_you_mean(key, known, 0.75)}"
    if hasattr(default, "items"):
        return f"is a section; set keys below it, not {value!r}"
    return not_of_type(value, default)


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return (text.splitlines() or [type(error).__name__])[0]


def for_constructor(config, changes: Mapping[str, object] | None = None):
    """A copy of the config for FS's constructor, with some keys changed.

    `changes` are given by ``<section>.<key>``. In the modes "standalone" and
    "distributed" FS's constructors make a communication manager, which unpickles
    received bytes. The copy has no mode, so they make none. The worker makes its own
    manager afterwards.
    """
    copy = config.clone()
    copy.defrost()
    # FS's monitor fails on metrics that are not in its config.
    own = {"federate.mode": "", "eval.metrics": list(METRICS)}
    for name, value in {**own, **(changes or {})}.items():
        section, key = name.split(".")
        copy[section][key] = value
    copy.freeze(inform=False, save=False, check_cfg=False)
    return copy


def follow_fs_logging() -> None:
    """Send the plugin's log lines to FS's console log and exp_print.log."""
    ours, theirs = (
        logging.getLogger("federatedscope_ggeur"),
        logging.getLogger("federatedscope"),
    )
    for handler in list(ours.handlers):
        ours.removeHandler(handler)
    for handler in theirs.handlers:
        ours.addHandler(handler)
    ours.setLevel(theirs.level)
    ours.propagate = False
