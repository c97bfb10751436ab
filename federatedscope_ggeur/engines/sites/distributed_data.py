"""The data that one process of a distributed run reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federatedscope_ggeur.cfg_ggeur.run_settings import (
    divides_nothing,
    server_evaluates,
)
from federatedscope_ggeur.cfg_ggeur.transform import prepared
from federatedscope_ggeur.data import (
    ClientData,
    DataSet,
    Embeddings,
    FederatedData,
    validation_share,
)
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.federation import Client
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.federation.settings import Prepared

from ..run import load_data_set, load_federated_data


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
    index = cfg.distribute.get("data_idx", -1)
    if index == -1:
        return _own_data(cfg)
    data = load_federated_data(cfg)
    return SiteData(data.clients[index - 1], data, _prepared_of(cfg, data))


def _own_data(cfg) -> SiteData:
    dataset, name = load_data_set(cfg), cfg.ggeur.domain
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
    held = ClientData(int(cfg.ggeur.client_number), name, **parts)
    held = held.hold_out(validation_share(cfg.data.splits), cfg.seed)
    return SiteData(held, dataset, _prepared_of(cfg, dataset))
