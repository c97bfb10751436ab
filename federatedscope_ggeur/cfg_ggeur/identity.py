"""Which process of a distributed run this is: the server, or which client."""

from __future__ import annotations

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.printable import Lines


def check_role(cfg, role: str) -> None:
    """Refuse a config that is not of this role of a distributed run.

    Raises
    ------
    ConfigError
        It is of another role, or does not say which client it is.
    """
    found = identity_problems(cfg)
    if cfg.federate.mode != "distributed":
        found = ["  federate.mode: must be distributed"]
    elif role_of(cfg) != role:
        found = [f"  distribute.role: must be {role}, got {shown(role_of(cfg))}"]
    if found:
        raise ConfigError(Lines(["wrong settings:", *found]))


def role_of(cfg) -> str:
    """``distribute.role``; outside FederatedScope only what is set is there."""
    return cfg.distribute.get("role", "client")


def identity_problems(cfg) -> list[str]:
    """Check that a client of a distributed run has one number, set only once."""
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
                "distribute.data_idx -1, to 1, 2, ... for each client its own"
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
            f"  ggeur.client_number: is {number}, but distribute.data_idx {index} is "
            "this client's number; leave one of them out"
        ]
    return []
