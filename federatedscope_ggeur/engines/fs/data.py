"""Gives FederatedScope (FS) the data of ``data.type: <name>@ggeur``.

In standalone mode FS needs a dict from client number to a dict of splits. In
distributed mode it needs the splits of this process. Splits are arrays, so that a
client without rows works.
"""

from __future__ import annotations

from collections.abc import Mapping

from federatedscope_ggeur.cfg_ggeur.check import check_places
from federatedscope_ggeur.cfg_ggeur.keys import RunKeys, read
from federatedscope_ggeur.cfg_ggeur.load import idle_notes
from federatedscope_ggeur.cfg_ggeur.run_settings import device_notes, divides_by_domain
from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import Client, MemoryBudget
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingKeys
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.printable import Lines, get_logger
from federatedscope_ggeur.settings import flatten

from ..run import load_federated_data
from ..sites.roles import ServerData, SiteData, client_number, server_data, site_data
from ..workers import Described, Shared
from .config import check, problems
from .user_errors import follow_fs_logging, setting_problem

logger = get_logger(__name__)


class Splits(dict):
    """The splits of one process's data in FS's form, with facts about the data.

    Parameters
    ----------
    splits : mapping from split to Embeddings
    whole : FederatedData or DataSet
        The data that the splits come from.
    prepared : Prepared, optional
    """

    def __init__(
        self,
        splits: Mapping[str, Embeddings],
        whole: Described,
        prepared: Prepared | None = None,
    ):
        super().__init__(
            {
                name: {"x": rows.features.numpy(), "y": rows.labels.numpy()}
                for name, rows in splits.items()
            }
        )
        self.class_names, self.encoder = tuple(whole.class_names), whole.encoder
        self.dim, self.given, self.prepared = whole.dim, whole.given, prepared


class ClientSplits(Splits):
    """The data of one client in FS's form.

    All clients of a process have the same object `shared`. If the server is in this
    process, they also have the same `roles`, a dict by client number.
    """

    def __init__(self, site: SiteData, shared: Shared, roles=None):
        held, whole = site.held, site.whole
        splits = {"train": held.train, "val": held.val, "test": held.test}
        super().__init__(splits, whole, site.prepared)
        self.held, self.shared = held, shared
        self.roles: dict[int, Client] = {} if roles is None else roles


class ServerSplits(Splits):
    """The server's data in FS's form; `known` is its `ServerData`."""

    def __init__(self, known: ServerData):
        whole = known.whole
        empty = whole.clients[0].test.select([])
        # FS wants one set of rows for a split: it gets the first domain's.
        splits = {
            split: next(iter(domains.values()), empty)
            for split, domains in known.rows.items()
        }
        super().__init__(splits, whole, known.prepared)
        self.known, self.rows = known, known.rows


def load_fs_data(config, client_cfgs):
    """Load the data for FS; returns the pair (data, config) that FS expects.

    Raises
    ------
    ConfigError
        Settings that the plugin cannot honour. The error has a line for each.
    DataError
        The data are invalid.
    """
    check(config)
    follow_fs_logging()
    if config.federate.mode == "standalone" or config.distribute.role == "server":
        # Reading the data can take hours, so this is checked before.
        check_places(config)
    # Later the config no longer holds what the user asked for.
    for note in idle_notes(config):
        logger.info("note: %s", note)
    for note in device_notes(config):
        logger.warning(note)
    data = _load(config)
    # FS seeds its global generators with a constant while it loads data.
    from federatedscope.core.auxiliaries.utils import setup_seed

    setup_seed(config.seed)
    if data is not None:
        held = data
        if config.federate.mode == "standalone":
            held = data[0]
            # FS makes this many clients.
            by_domain = divides_by_domain(config)
            config.federate.client_num = len(data) - 1
            if by_domain:
                config.data.splitter = "iid"  # the division that was made
        config.model.out_channels = len(held.class_names)
        config.model.input_shape = (held.dim,)
    config.model.hidden = read(config.ggeur, TrainingKeys).mlp_hidden_dim
    if client_cfgs is not None:
        complete(client_cfgs, config)
    return data, config


def _load(config):
    shared = Shared(MemoryBudget(read(config.ggeur, RunKeys).memory_limit))
    if config.federate.mode == "standalone":
        data, roles = load_federated_data(config), {}
        known = ServerData.of(config, data, roles)
        clients = {
            held.number: ClientSplits(
                SiteData(held, data, known.prepared), shared, roles
            )
            for held in data.clients
        }
        return {0: ServerSplits(known), **clients}
    if config.distribute.role == "server":
        known = server_data(config)
        return known and ServerSplits(known)
    return ClientSplits(site_data(config), shared)


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
    lines = [
        line
        for name, section in client_cfgs.items()
        if name != _OWN
        for line in _problems(name, section, names, cfg)
    ]
    if lines:
        raise ConfigError(Lines(["wrong settings in --client_cfg:", *lines]))
    for name in names - client_cfgs.keys():
        client_cfgs[name] = type(client_cfgs)()
    if cfg.federate.mode == "distributed" and cfg.distribute.role == "client":
        client_cfgs[_OWN] = client_cfgs[f"client_{client_number(cfg)}"]


def _problems(name: str, section, names: set[str], cfg) -> list[str]:
    if name not in names:
        return [f"  {name}: there are only client_1 to client_{len(names)}"]
    if not hasattr(section, "items"):
        return [f"  {name}: must hold settings, got {section!r}"]
    copy, lines = cfg.clone(), []
    for key, value in flatten(section):
        if problem := setting_problem(copy, key, value):
            lines.append(f"  {name}.{key}: {problem}")
    already = problems(cfg)
    return lines + [
        f"  {name}.{line.strip()}" for line in problems(copy) if line not in already
    ]
