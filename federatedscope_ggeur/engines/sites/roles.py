"""Reads the file of a site or a server, which describes the whole process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.keys import add_key
from federatedscope_ggeur.cfg_ggeur.load import OTHER_KEYS, load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml
from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.federation.wire.packing import VERSION
from federatedscope_ggeur.version import __version__

#: How each role is started.
COMMANDS = {"client": "ggeur join", "server": "ggeur serve"}


def release_text() -> str:
    """The release of this package and the version of its messages, as a text."""
    return f"{__version__}, messages of version {VERSION}"


def names_server(path: str) -> bool:
    """Whether the file names a server; by folder and with Flower it does not.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    return "distribute.server_host" in dict(read_yaml(find_config(path)))


def role_config(
    path: str,
    role: str,
    more: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
):
    """Load the config of the file as FederatedScope (FS) would, without FS.

    Paths in the file are relative to its folder, so this process changes to this
    folder. A server continues from ``federate.save_to`` if this file exists.

    Parameters
    ----------
    path : of the YAML file
    role : {"client", "server"}
    more : mapping, optional
        Settings by key that the file need not say.
    overrides : sequence of str
        Keys and values that replace those of the file.

    Raises
    ------
    ConfigError
        The file cannot be read, is for another role, or agrees on another release of
        this package. Or the error names all wrong settings of the file.
    """
    found = find_config(path).resolve()
    said = dict(read_yaml(found))
    agreed, own = said.get("ggeur.agreed.release", ""), release_text()
    if agreed not in ("", own):
        raise ConfigError(
            f"ggeur.agreed.release: the federation runs federatedscope-ggeur {agreed}, "
            f"but here is {own}; install the same release at the server and all sites, "
            "or change this line in all their files"
        )
    implied: dict[str, object] = {
        "federate.mode": "distributed",
        "federate.method": "ggeur",
        "ggeur.use": True,
        "distribute.use": True,
        "distribute.role": role,
    }
    for key, value in implied.items():
        there = said.get(key, value)
        if there == value:
            continue
        other = COMMANDS.get(str(there))
        hint = f"; start it by: {other} --cfg {path}" if other else "; take it out"
        raise ConfigError(
            f"{path}: {key} is {shown(there)}, but {COMMANDS[role]} needs {value}{hint}"
        )
    os.chdir(found.parent)
    kept = str(said.get("federate.save_to") or "")
    goes_on = role == "server" and not said.get("federate.restore_from")
    if goes_on and kept and Path(kept).exists():
        implied["federate.restore_from"] = kept
    implied.update({k: v for k, v in (more or {}).items() if k not in said})
    words = [str(word) for pair in implied.items() for word in pair]
    cfg = load_config(found, [*words, *overrides], on_fs=True)
    cfg.defrost()
    for one in OTHER_KEYS.values():  # a config has them only where they are named
        section, _, name = one.name.partition(".")
        if section == "distribute" and name not in cfg.distribute:
            add_key(cfg, one.name, one.default)
    cfg.freeze()
    return cfg
