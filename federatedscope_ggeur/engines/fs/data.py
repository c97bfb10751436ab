"""``data.type: <name>@ggeur`` in FederatedScope (FS).

FS wants a dict from client number to a dict of splits (standalone) or the splits of
this process (distributed). Splits are arrays, so that a client with no rows works.
"""

from __future__ import annotations

from collections.abc import Mapping

from federatedscope_ggeur.cfg_ggeur.devices import device_notes
from federatedscope_ggeur.cfg_ggeur.fs_defaults import idle_notes
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    divides_by_domain,
    divides_nothing,
    server_evaluates,
)
from federatedscope_ggeur.data import (
    ClientData,
    DataSet,
    Embeddings,
    FederatedData,
    validation_share,
)
from federatedscope_ggeur.engines.fs.client_configs import complete
from federatedscope_ggeur.engines.fs.config import check
from federatedscope_ggeur.engines.fs.search import is_search
from federatedscope_ggeur.engines.fs.setup import follow_fs_logging
from federatedscope_ggeur.engines.fs.trials import settle_trial
from federatedscope_ggeur.engines.run import (
    load_data_set,
    load_federated_data,
    pooled_rows,
)
from federatedscope_ggeur.engines.text import class_texts
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.federation import Client, MemoryBudget
from federatedscope_ggeur.federation.course.checkpoint import check_place
from federatedscope_ggeur.federation.course.client_handler import DecodedParts
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.models.text import ClassTexts
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


class Splits(dict):
    """The splits of one process' data, as FS wants them, and what the roles need.

    Parameters
    ----------
    splits : mapping from split to Embeddings
    class_names : sequence of str
    encoder : str
    dim : int
    text : ClassTexts, optional
        Where something is made of text features.
    """

    def __init__(
        self,
        splits: Mapping[str, Embeddings],
        class_names: tuple[str, ...],
        encoder: str,
        dim: int,
        text: ClassTexts | None = None,
    ):
        super().__init__(
            {
                name: {"x": rows.features.numpy(), "y": rows.labels.numpy()}
                for name, rows in splits.items()
            }
        )
        self.class_names, self.encoder, self.dim = tuple(class_names), encoder, dim
        self.text = text

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


class ClientSplits(Splits):
    """The data of one client. All clients of a process share `memory` and `cache`.

    If the server is in the same process, they share `roles`, by client number, too.
    """

    def __init__(self, held: ClientData, data, memory, cache, text=None, roles=None):
        splits = {"train": held.train, "val": held.val, "test": held.test}
        super().__init__(splits, data.class_names, data.encoder, data.dim, text)
        self.held: ClientData = held
        self.memory: MemoryBudget = memory
        self.cache: DecodedParts = cache
        self.roles: dict[int, Client] = {} if roles is None else roles


class ServerSplits(Splits):
    """What the server holds: rows by split and domain, see `FederatedData.server_rows`.

    `client_num` is the number of clients that the data were divided among, even if the
    rows are pooled. In standalone mode `held` says what the clients hold, and `roles`
    has their roles by number. In a distributed run a server holds only rows to score
    on.
    """

    def __init__(
        self,
        rows: Mapping[str, Mapping[str, Embeddings]],
        data: FederatedData,
        client_num: int,
        held: Holdings | None = None,
        text: ClassTexts | None = None,
        roles: dict[int, Client] | None = None,
    ):
        empty = data.clients[0].test.select([])
        # FS wants one set of rows for a split: it gets the first domain's.
        splits = {
            split: next(iter(domains.values()), empty)
            for split, domains in rows.items()
        }
        super().__init__(splits, data.class_names, data.encoder, data.dim, text)
        self.rows = rows
        self.unseen = [domain.name for domain in data.unseen]
        self.domains = [*data.domains, *self.unseen]
        self.client_num, self.held, self.roles = client_num, held, roles
        self.pooled = pooled_rows(data)


def load_fs_data(config, client_cfgs=None):
    """FS's data function: (data, config).

    Raises
    ------
    ConfigError
        Every setting that the plugin cannot honour, a line each.
    DataError
        The data cannot be used as they are.
    """
    check(config)
    follow_fs_logging()
    if is_search():
        settle_trial(config)
    if config.federate.mode == "standalone" or config.distribute.role == "server":
        # Reading the data can take hours, so this is checked before.
        check_place(config.federate.save_to, config.federate.restore_from)
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
        config.model.out_channels = held.num_classes
        config.model.input_shape = (held.dim,)
    config.model.hidden = int(config.ggeur.mlp_hidden_dim)
    if client_cfgs is not None:
        complete(client_cfgs, config)
    return data, config


def _load(config):
    if config.federate.mode == "standalone":
        data = load_federated_data(config)
        text = _texts(config, data)
        memory, cache = MemoryBudget(config.ggeur.memory_limit), DecodedParts()
        roles: dict[int, Client] = {}
        clients = {
            held.number: ClientSplits(held, data, memory, cache, text, roles)
            for held in data.clients
        }
        return {0: _server_splits(config, data, text, roles), **clients}
    if config.distribute.role == "server":
        if divides_nothing(config):
            return None
        data = load_federated_data(config)
        return _server_splits(config, data, _texts(config, data))
    memory, cache = MemoryBudget(config.ggeur.memory_limit), DecodedParts()
    if config.distribute.data_idx == -1:
        return _own_data(config, memory, cache)
    data = load_federated_data(config)
    held = data.clients[config.distribute.data_idx - 1]
    return ClientSplits(held, data, memory, cache, _texts(config, data))


def _texts(config, data: FederatedData | DataSet) -> ClassTexts | None:
    return class_texts(config, data.class_names, data.dim, data.identity)


def _server_splits(
    config, data: FederatedData, text: ClassTexts | None, roles=None
) -> ServerSplits:
    rows = data.server_rows(config.eval.split, server_evaluates(config))
    client_num = config.federate.client_num or len(data.domains)
    held = None
    if config.federate.mode == "standalone":
        held = Holdings.of(data.clients, data.num_classes)
    return ServerSplits(rows, data, client_num, held, text, roles)


def _own_data(config, memory: MemoryBudget, cache: DecodedParts) -> ClientSplits:
    """All of this process' own ``data.root``, as one client's."""
    dataset = load_data_set(config)
    name = config.ggeur.domain
    parts = {
        split: Embeddings.concatenate(
            [getattr(d, split) for d in dataset.domains], name
        )
        for split in ("train", "test")
    }
    if not len(parts["train"]) and not len(parts["test"]):
        raise DataError(f"data.root '{config.data.root}' holds no rows")
    held = ClientData(int(config.ggeur.client_number), name, **parts)
    held = held.hold_out(validation_share(config.data.splits), config.seed)
    return ClientSplits(held, dataset, memory, cache, _texts(config, dataset))
