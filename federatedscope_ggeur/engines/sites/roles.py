"""What one process of a distributed run is: its role, its settings and its data.

The file of a site or of a server describes the whole process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.fs_keys import distributed
from federatedscope_ggeur.cfg_ggeur.keys import (
    DeadlineKeys,
    DistributedKeys,
    TLSKeys,
    add_key,
    read,
)
from federatedscope_ggeur.cfg_ggeur.load import OTHER_KEYS, load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    divides_nothing,
    held_for_validation,
    server_evaluates,
)
from federatedscope_ggeur.cfg_ggeur.transform import prepared
from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml
from federatedscope_ggeur.data import (
    ClientData,
    DataSet,
    Embeddings,
    FederatedData,
)
from federatedscope_ggeur.engines.run import load_data_set, load_federated_data
from federatedscope_ggeur.errors import ConfigError, DataError, shown
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.federation import Client
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.federation.wire.packing import VERSION
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.version import __version__

from .transport import Security, TransportSettings

#: How each role is started.
COMMANDS = {"client": "ggeur join", "server": "ggeur serve"}


def release_text() -> str:
    """The release of this package and the version of its messages, as a text."""
    return f"{__version__}, messages of version {VERSION}"


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
        Settings by key that the file need not say. They do not count where the file
        gives the site a share of a data set, whose number is the site's.
    overrides : sequence of str
        Keys and values that replace those of the file.

    Raises
    ------
    ConfigError
        The file cannot be read, is for another role, agrees on another release of
        this package, or does not state a site's number. Or the error names all wrong
        settings of the file.
    """
    file = find_config(path).resolve()
    said = dict(read_yaml(file))
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
    os.chdir(file.parent)
    kept = str(said.get("federate.save_to") or "")
    goes_on = role == "server" and not said.get("federate.restore_from")
    if goes_on and kept and Path(kept).exists():
        implied["federate.restore_from"] = kept
    if "distribute.data_idx" not in said:
        implied.update({k: v for k, v in (more or {}).items() if k not in said})
    words = [str(word) for pair in implied.items() for word in pair]
    cfg = load_config(file, [*words, *overrides], on_fs=True)
    cfg.defrost()
    for one in OTHER_KEYS.values():  # a config has them only where they are named
        section, _, name = one.name.partition(".")
        if section == "distribute" and name not in cfg.distribute:
            add_key(cfg, one.name, one.default)
    cfg.freeze()
    check_role(cfg, role)
    return cfg


def check_role(cfg, role: str) -> None:
    """Check that a config belongs to the `role` "server" or "client" of a distributed
    run.

    Raises
    ------
    ConfigError
        The config belongs to another role, or does not state the client's number.
    """
    lines = identity_problems(cfg)
    if cfg.federate.mode != "distributed":
        lines = ["  federate.mode: must be distributed"]
    elif (own := distributed(cfg, "role")) != role:
        lines = [f"  distribute.role: must be {role}, got {shown(own)}"]
    if lines:
        raise ConfigError(Lines(["wrong settings:", *lines]))


def identity_problems(cfg) -> list[str]:
    """The problems of the settings that tell which process of a distributed run this
    is.

    A client must have one number, and only one setting may state it.
    """
    role = distributed(cfg, "role")
    if cfg.federate.mode != "distributed" or role == "server":
        return []
    if role != "client":
        return [f"  distribute.role: must be server or client, got {shown(role)}"]
    index, own = distributed(cfg, "data_idx"), read(cfg.ggeur, DistributedKeys)
    number = own.client_number
    if index == -1:
        lines = []
        if number is None:
            lines.append(
                "  ggeur.client_number: must be set with distribute.role client and "
                "distribute.data_idx -1, to another number (1, 2, ...) for each client"
            )
        if not own.domain:
            lines.append(
                "  ggeur.domain: must name this client's domain with distribute.role "
                "client and distribute.data_idx -1"
            )
        return lines
    if not 1 <= index <= cfg.federate.client_num:
        return [
            f"  distribute.data_idx: must lie in 1..{cfg.federate.client_num} "
            f"(federate.client_num), or be -1 for a client with its own data; got "
            f"{index}"
        ]
    if number not in (None, index):
        return [
            f"  ggeur.client_number: is {number}, but distribute.data_idx gives this "
            f"client the number {index}; remove one of the two"
        ]
    return []


def transport_settings(cfg) -> TransportSettings:
    """Make the settings of the transport from `cfg.distribute` and `cfg.ggeur`."""
    own, tls = read(cfg.ggeur, DistributedKeys), read(cfg.ggeur, TLSKeys)
    ways = "grpc_max_send_message_length", "grpc_max_receive_message_length"
    longest = min(distributed(cfg, way) for way in ways)
    return TransportSettings(
        max_message=longest,
        max_frame=min(TransportSettings.max_frame, longest),
        join_deadline=read(cfg.ggeur, DeadlineKeys).join,
        security=Security(
            certificate=tls.certificate,
            key=tls.private_key,
            authority=tls.authority,
            # Absolute: it is read whenever a client joins, in whatever folder.
            join_secret=own.join_secret and os.path.abspath(own.join_secret),
            join_token=own.join_token,
        ),
        http_proxy=distributed(cfg, "grpc_enable_http_proxy"),
    )


@dataclass(frozen=True)
class SiteData:
    """A client's rows, their data set, and what is prepared of its classes."""

    held: ClientData
    whole: FederatedData | DataSet
    prepared: Prepared | None


@dataclass(frozen=True)
class ServerData:
    """The data that a server reads, and facts about clients' data.

    Attributes
    ----------
    rows : mapping from split to mapping from domain to Embeddings
        See `FederatedData.server_rows`.
    whole : FederatedData
        The divided data. In a distributed run these are the server's own rows for
        scoring.
    client_num : int
        The number of clients over which the data are divided. A run that pools all rows
        has it, too.
    prepared : Prepared or None
    held : Holdings or None
        The numbers of rows of all clients; None unless all are in this process.
    roles : dict from client number to Client, or None like `held`
    """

    rows: Mapping[str, Mapping[str, Embeddings]]
    whole: FederatedData
    client_num: int
    prepared: Prepared | None
    held: Holdings | None = None
    roles: dict[int, Client] | None = None

    @classmethod
    def of(
        cls, cfg, data: FederatedData, roles: dict[int, Client] | None = None
    ) -> ServerData:
        """Make the server's data from divided data; the caller fills `roles` later."""
        rows = data.server_rows(cfg.eval.split, server_evaluates(cfg))
        client_num = cfg.federate.client_num or len(data.domains)
        held = None if roles is None else Holdings.of(data.clients, data.num_classes)
        return cls(rows, data, client_num, _prepared_of(cfg, data), held, roles)

    @property
    def unseen(self) -> list[str]:
        """The domains that no client holds."""
        return [domain.name for domain in self.whole.unseen]

    @property
    def domains(self) -> list[str]:
        """All domains; the unseen ones come last."""
        return [*self.whole.domains, *self.unseen]


def _prepared_of(cfg, data: FederatedData | DataSet) -> Prepared | None:
    """What is prepared of the classes; see `prepared`."""
    names, encoder = data.class_names, data.encoder
    return prepared(cfg, names, data.dim, data.identity, encoder)


def server_data(cfg) -> ServerData | None:
    """Read the data of a distributed run's server; None if it needs no rows."""
    return (
        None if divides_nothing(cfg) else ServerData.of(cfg, load_federated_data(cfg))
    )


def site_data(cfg) -> SiteData:
    """Read the data of one client of a distributed run.

    They are its share of the data set. With ``distribute.data_idx`` -1 they are all
    rows in its own ``data.root``.

    Raises
    ------
    ConfigError, DataError
        The data cannot be read or divided as the config says, or they have no rows.
    """
    index = distributed(cfg, "data_idx")
    if index == -1:
        return _own_data(cfg)
    data = load_federated_data(cfg)
    return SiteData(data.clients[index - 1], data, _prepared_of(cfg, data))


def client_number(cfg) -> int:
    """The number of the client that this process runs, see `identity_problems`."""
    index = distributed(cfg, "data_idx")
    own = read(cfg.ggeur, DistributedKeys).client_number
    return own if index == -1 and own is not None else index


def _own_data(cfg) -> SiteData:
    dataset, name = load_data_set(cfg), read(cfg.ggeur, DistributedKeys).domain
    parts = {
        split: Embeddings.concatenate(
            [getattr(d, split) for d in dataset.domains], name
        )
        for split in ("train", "test")
    }
    if not len(parts["train"]) and not len(parts["test"]):
        raise DataError(
            f"data.root: '{cfg.data.root}' has no rows; put the site's data there"
        )
    held = ClientData(client_number(cfg), name, **parts)
    held = held.hold_out(held_for_validation(cfg), cfg.seed)
    return SiteData(held, dataset, _prepared_of(cfg, dataset))
