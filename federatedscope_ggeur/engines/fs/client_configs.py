"""Completes the settings of single clients, from FederatedScope's ``--client_cfg``.

FS looks up the section ``client_<number>`` of each client. In distributed mode it looks
up ``client_-1`` for the client of the process. It fails if the section is missing.
"""

from __future__ import annotations

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import flatten

from .config import problems
from .user_errors import setting_problem

#: FS's name for the one client of a process.
_OWN = "client_-1"


def complete(client_cfgs, cfg) -> None:
    """Add an empty section to `client_cfgs` for each client without one.

    Parameters
    ----------
    client_cfgs : CfgNode
        Each section ``client_<number>`` holds settings for this client.
    cfg : config of FS
        ``federate.client_num`` is the number of clients.

    Raises
    ------
    ConfigError
        A section belongs to no client, or has a setting that a single client cannot
        have.
    """
    names = {f"client_{k}" for k in range(1, cfg.federate.client_num + 1)}
    found = [
        line
        for name, section in client_cfgs.items()
        if name != _OWN
        for line in _problems(name, section, names, cfg)
    ]
    if found:
        raise ConfigError(Lines(["wrong settings in --client_cfg:", *found]))
    for name in names - client_cfgs.keys():
        client_cfgs[name] = type(client_cfgs)()
    if cfg.federate.mode == "distributed" and cfg.distribute.role == "client":
        client_cfgs[_OWN] = client_cfgs[f"client_{_number(cfg)}"]


def _number(cfg) -> int:
    """The number of the client that this process runs."""
    index = cfg.distribute.data_idx
    return int(cfg.ggeur.client_number) if index == -1 else index


def _problems(name: str, section, names: set[str], cfg) -> list[str]:
    if name not in names:
        return [f"  {name}: there are only client_1 to client_{len(names)}"]
    if not hasattr(section, "items"):
        return [f"  {name}: must hold settings, got {section!r}"]
    copy, found = cfg.clone(), []
    for key, value in flatten(section):
        if problem := setting_problem(copy, key, value):
            found.append(f"  {name}.{key}: {problem}")
    already = problems(cfg)
    return found + [
        f"  {name}.{line.strip()}" for line in problems(copy) if line not in already
    ]
