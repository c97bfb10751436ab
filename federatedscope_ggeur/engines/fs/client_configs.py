"""Settings of single clients, FederatedScope's (FS's) ``--client_cfg``.

FS looks for ``client_<number>`` of each client, in distributed mode for ``client_-1``
of the process' own, and fails where there is none.
"""

from __future__ import annotations

from federatedscope_ggeur.engines.fs.config import problems
from federatedscope_ggeur.engines.fs.user_errors import setting_problem
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import flatten

#: What FS takes the one client of a process for.
_OWN = "client_-1"


def complete(client_cfgs, cfg) -> None:
    """Give the clients that `client_cfgs` leaves out an empty section, in place.

    Parameters
    ----------
    client_cfgs : CfgNode
        Section ``client_<number>`` -> settings of that client alone.
    cfg : config of FS
        ``federate.client_num`` is how many clients there are.

    Raises
    ------
    ConfigError
        A section is of nobody, or a client cannot have a setting in it.
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
    """Which client this process is."""
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
