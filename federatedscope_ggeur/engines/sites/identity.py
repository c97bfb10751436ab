"""Check whether a process of a distributed run is the server or a client, and which."""

from __future__ import annotations

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.printable import Lines


def check_role(cfg, role: str) -> None:
    """Check that a config belongs to the `role` "server" or "client" of a distributed
    run.

    Raises
    ------
    ConfigError
        The config belongs to another role, or does not state the client's number.
    """
    found = identity_problems(cfg)
    if cfg.federate.mode != "distributed":
        found = ["  federate.mode: must be distributed"]
    elif role_of(cfg) != role:
        found = [f"  distribute.role: must be {role}, got {shown(role_of(cfg))}"]
    if found:
        raise ConfigError(Lines(["wrong settings:", *found]))


def role_of(cfg) -> str:
    """The value of ``distribute.role``; by default, "client".

    Outside FederatedScope the config has the key only if it is set.
    """
    return cfg.distribute.get("role", "client")


def identity_problems(cfg) -> list[str]:
    """The problems of the settings that tell which process of a distributed run this
    is.

    A client must have one number, and only one setting may state it.
    """
    role = role_of(cfg)
    if cfg.federate.mode != "distributed" or role == "server":
        return []
    if role != "client":
        return [f"  distribute.role: must be server or client, got {shown(role)}"]
    index, number = cfg.distribute.get("data_idx", -1), int(cfg.ggeur.client_number)
    if index == -1:
        found = []
        if number == -1:
            found.append(
                "  ggeur.client_number: must be set with distribute.role client and "
                "distribute.data_idx -1, to another number (1, 2, ...) for each client"
            )
        if not cfg.ggeur.domain:
            found.append(
                "  ggeur.domain: must name this client's domain with distribute.role "
                "client and distribute.data_idx -1"
            )
        return found
    if not 1 <= index <= cfg.federate.client_num:
        return [
            f"  distribute.data_idx: must lie in 1..{cfg.federate.client_num} "
            f"(federate.client_num), or be -1 for a client with its own data; got "
            f"{index}"
        ]
    if number not in (-1, index):
        return [
            f"  ggeur.client_number: is {number}, but distribute.data_idx gives this "
            f"client the number {index}; remove one of the two"
        ]
    return []
