"""Runs FederatedScope's own main with the plugin, without changing FS's files."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur import extend_ggeur_cfg
from federatedscope_ggeur.errors import ConfigError

from ..run import note_start, take_sigterm
from . import register
from .install import EXTRA, find, importable_package, missing_packages
from .user_errors import user_error

_CONFIG_MODULE = "federatedscope.core.configs.config"


def launch(
    config: str | os.PathLike,
    settings: Sequence[str] = (),
    client_config: str | os.PathLike | None = None,
) -> int:
    """Run ``python federatedscope/main.py --cfg FILE ...`` with the plugin.

    FS is the importable ``federatedscope``, or else the checkout that
    FEDERATEDSCOPE_HOME names. If FS starts processes itself (``federate.process_num``
    above 1), these have the plugin only if it is enabled.

    Parameters
    ----------
    config : path of the experiment's YAML file
    settings : sequence of str
        ``["federate.total_round_num", "5", ...]``, read by FS.
    client_config : path of FS's YAML file of single clients' settings, optional

    Returns
    -------
    int
        The exit status 0. If FS itself exits, `SystemExit` passes through.

    Raises
    ------
    ConfigError
        FS or a package that it needs is missing, or `client_config` does not exist.
    Exception
        The error that stopped the run in FS; a `GGEURError` if the plugin raised it.
    KeyboardInterrupt
        Ctrl-C or SIGTERM. The files of finished rounds are written.
    """
    arguments = ["--cfg", str(config)]
    if client_config is not None:
        if not os.path.isfile(client_config):
            raise ConfigError(
                f"--client_cfg: the file '{client_config}' does not exist"
            )
        arguments += ["--client_cfg", str(client_config)]
    arguments += _guarded(settings)
    main = _prepare(arguments) / "main.py"
    note_start(["ggeur", "--engine", "federatedscope"])
    before = sys.argv
    # FS's parser reads sys.argv.
    sys.argv = [str(main), *arguments]
    undo = take_sigterm()
    try:
        runpy.run_path(str(main), run_name="__main__")
    except KeyboardInterrupt:
        # Python sets it if FS's main ends a program. Our file writer reads it.
        sys.last_type = KeyboardInterrupt
        raise
    except Exception as error:
        told = user_error(error, arguments)
        if told is None or told is error:
            raise
        raise told from error
    finally:
        undo()
        sys.argv = before
    return 0


def _guarded(settings: Sequence[str]) -> list[str]:
    """Put quotes around each value that begins with "client".

    FS takes every word that begins with "client" for a setting of one client, even the
    value in ``distribute.role client``. It reads a quoted word as a value.
    """
    keys, values = settings[::2], settings[1::2]
    values = [repr(v) if v.startswith("client") else v for v in values]
    return [
        word for pair in zip_longest(keys, values) for word in pair if word is not None
    ]


def _prepare(arguments: Sequence[str]) -> Path:
    """Make FS importable and register the plugin; returns FS's package folder."""
    package = find()
    missing = missing_packages()
    if missing:
        raise ConfigError(
            "FederatedScope needs packages that are not installed: "
            f"{', '.join(missing)}. Install them: {EXTRA}"
        )
    if importable_package() is None:
        sys.path.insert(0, str(package.parent))
    try:
        register(arguments)
        _extend_built_config()
    except ImportError as error:
        raise ConfigError(
            f"the plugin cannot be loaded into FederatedScope in '{package}': {error}; "
            "ggeur doctor says what is missing"
        ) from error
    return package


def _extend_built_config() -> None:
    """Add the plugin's keys to FS's config if FS has built it before."""
    from federatedscope.register import config_dict

    built = sys.modules.get(_CONFIG_MODULE)
    if built is None:
        return
    if "ggeur" not in built.global_cfg:
        config_dict["ggeur"](built.global_cfg)
    else:
        extend_ggeur_cfg(built.global_cfg)
