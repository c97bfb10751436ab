"""Divide a data set among clients (``data.splitter``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from federatedscope_ggeur.data.embeddings import (
    DataSet,
    Domain,
    Embeddings,
    check_labels_below,
)
from federatedscope_ggeur.data.encoders import EncoderSettings
from federatedscope_ggeur.data.named_labels import is_named, numbers_of_names
from federatedscope_ggeur.data.split import hold_out
from federatedscope_ggeur.data.splitters import Task, divide, read_arguments
from federatedscope_ggeur.data.torch_datasets import embed_datasets
from federatedscope_ggeur.errors import ConfigError, DataError, listed, setting, shown
from federatedscope_ggeur.rng import numpy_generator

#: The domain of rows that come without one.
ALL = "all"


@dataclass(frozen=True)
class ClientData:
    """What one client holds. Each part may have no rows.

    Parameters
    ----------
    number : int
        The client's number, from 1.
    domain : str
    train, test : Embeddings
    val : Embeddings, optional
        Rows for validation; none if not given.
    """

    number: int
    domain: str
    train: Embeddings
    test: Embeddings
    val: Embeddings = None

    def __post_init__(self):
        if self.val is None:
            object.__setattr__(self, "val", self.train.select([]))

    def hold_out(self, share: float, seed: int) -> ClientData:
        """The data with a share of the training rows set aside for validation, by
        class.

        The choice depends on the seed and on the client alone.
        """
        if share == 0:
            return self
        rng = numpy_generator(seed, "partition", self.domain, "val", self.number)
        train, val = hold_out(self.train.labels.numpy(), share, rng)
        return replace(self, train=self.train.select(train), val=self.train.select(val))


@dataclass(frozen=True)
class FederatedData:
    """A data set divided among clients.

    Parameters
    ----------
    clients : tuple of ClientData
        In order of number: 1, 2, ..., K.
    domains : tuple of str
        The seen domains, each held by at least one client.
    unseen : tuple of Domain
        The domains that no client holds. Only their test rows are scored.
    class_names : tuple of str, of length C
    encoder : str
    pooled : mapping from split ("test", "val") to mapping from domain to Embeddings
        Where one client trains on the rows of all domains (see `centralise`), the rows
        of the seen domains that no client holds. None elsewhere.
    identity : mapping, optional
        Everything about the encoder that the embeddings depend on; None if unknown.
    pooled_clients : int
        How many clients held the training rows before one client got them all; 0 if
        they never moved.
    """

    clients: tuple[ClientData, ...]
    domains: tuple[str, ...]
    unseen: tuple[Domain, ...]
    class_names: tuple[str, ...]
    encoder: str
    pooled: Mapping[str, Mapping[str, Embeddings]] | None = None
    identity: Mapping[str, object] | None = None
    pooled_clients: int = 0

    def __post_init__(self):
        _check_clients(self)

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        labels: Any,
        clients: Any = None,
        domains: Any = None,
        *,
        test: Any = None,
        validation: Any = None,
        class_names: Sequence[str] | None = None,
        users: Any = None,
        encoder: str = "arrays",
    ) -> FederatedData:
        """Make data from arrays, Tensors or lists with one entry for each of n rows.

        Parameters
        ----------
        features : array of shape (n, D)
        labels : array of shape (n,)
            Class numbers, or class names.
        clients : array of shape (n,), optional
            The client of each row. Clients are numbered from 1 in the order of these
            values. By default one client holds all rows.
        domains : array of shape (n,), optional
            The domain of each row; all rows of a client have the same. By default there
            is one domain.
        test, validation : bool arrays of shape (n,), optional
            Which rows to test on, and which to validate on. All others are trained on.
        class_names : sequence of str, optional
            By default the names among the labels, in their order, or "0", "1", ...
        users : int array of shape (n,), optional
            Who made each row.
        encoder : str
            How the features were made, in one line.

        Raises
        ------
        DataError
            The data cannot be used. The error names the first row with the problem.
        """
        features, labels = as_array(features), as_array(labels)
        if is_named(labels):
            class_names = class_names or np.unique(labels).tolist()
            labels = numbers_of_names(labels, class_names, "labels")
        users = None if users is None else as_array(users)
        rows = Embeddings.from_numpy(features, labels, ALL, "arrays", None, users)
        if len(rows) == 0:
            raise DataError("arrays: 'features' and 'labels' have zero rows.")
        if class_names is None:
            class_names = [str(c) for c in range(int(rows.labels.max()) + 1)]
        n = len(rows)
        client_of = column_of("clients", clients, n, 1)
        domain_of = column_of("domains", domains, n, ALL)
        is_test = _mask("test", test, n)
        is_val = _mask("validation", validation, n)
        both = is_test & is_val
        if both.any():
            row = int(both.argmax())
            raise DataError(
                f"row {row} is both a test and a validation row; choose one."
            )
        # Sorted by client and split, each part is a view of the same arrays.
        names, owner = np.unique(client_of, return_inverse=True)
        split = np.select([is_test, is_val], [1, 2], 0)
        order = np.lexsort((split, owner))
        if (np.diff(order) < 0).any():
            rows, domain_of = rows.select(order), domain_of[order]
        sizes = np.bincount(3 * owner + split, minlength=3 * len(names))
        parts = rows.split(sizes.tolist())
        held, first = [], 0
        for number, client in enumerate(names.tolist(), 1):
            train, tests, val = parts[3 * number - 3 : 3 * number]
            last = first + len(train) + len(tests) + len(val)
            domain = _domain_of(client, domain_of[first:last])
            first = last
            own = (part.of_domain(domain) for part in (train, tests, val))
            held.append(ClientData(number, domain, *own))
        return cls(
            tuple(held),
            tuple(dict.fromkeys(client.domain for client in held)),
            (),
            tuple(class_names),
            encoder,
        )

    @classmethod
    def from_torch(
        cls,
        datasets: Mapping[str, Any],
        encoder: str | EncoderSettings,
        *,
        domains: Mapping[str, str] | None = None,
        **more: Any,
    ) -> FederatedData:
        """Make data from one image data set for each client, as torchvision has them.

        Parameters
        ----------
        datasets : mapping from client to data set
            The clients are numbered from 1 in this order.
        encoder : str or EncoderSettings
        domains : mapping from client to str, optional
            By default there is one domain.
        more
            Test sets, class names, cache and device, see `embed_datasets`. The errors
            are the same, too.
        """
        encoded = embed_datasets(datasets, encoder, **more)
        clients = []
        for number, name in enumerate(datasets, 1):
            domain = str((domains or {}).get(name, ALL))
            parts = [part.of_domain(domain) for part in encoded.domains[name]]
            clients.append(ClientData(number, domain, *parts))
        return cls(
            tuple(clients),
            tuple(dict.fromkeys(client.domain for client in clients)),
            (),
            encoded.class_names,
            encoded.encoder,
            identity=encoded.identity,
        )

    @property
    def is_centralised(self) -> bool:
        """Whether all domains' training rows are in one place."""
        return self.pooled is not None

    def faults(self) -> list[str]:
        """Reasons why no head can learn: one class alone, or equal rows."""
        rows = [client.train for client in self.clients if len(client.train)]
        if not rows:
            return []
        labels = torch.cat([part.labels for part in rows]).unique()
        if len(labels) == 1:
            name = shown(self.class_names[int(labels[0])])
            return [
                f"all training rows are of one class, {name}: no head learns anything"
            ]
        first = rows[0].features[:1]
        if all(bool((part.features == first).all()) for part in rows):
            return ["all training rows are the same: no head can tell classes apart"]
        return []

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return self.clients[0].train.dim

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width) where rows are pixels; None for embeddings."""
        return self.clients[0].train.image_shape

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""
        return len(self.class_names)

    def test_sets(self) -> dict[str, Embeddings]:
        """The whole test set of each domain, seen domains first. Rows are in client
        order."""
        return {**self.rows("test"), **{d.name: d.test for d in self.unseen}}

    def rows(self, split: str) -> dict[str, Embeddings]:
        """The rows of a split, "train", "val" or "test", of each seen domain, in client
        order."""
        if self.pooled is not None and split in self.pooled:
            return dict(self.pooled[split])
        together = self.is_centralised
        names = [self.clients[0].domain] if together else self.domains
        return {
            name: Embeddings.concatenate(
                [getattr(c, split) for c in self.clients if c.domain == name]
            )
            for name in names
        }

    def server_rows(
        self, splits: Sequence[str], seen: bool
    ) -> dict[str, dict[str, Embeddings]]:
        """The rows that a server scores a head on, by split and domain.

        They are all rows of the `splits` if the server holds those of `seen` domains,
        and the test sets of unseen domains.
        """
        rows = {split: self.rows(split) if seen else {} for split in splits}
        if "test" in rows:
            rows["test"].update((domain.name, domain.test) for domain in self.unseen)
        return rows


def as_array(values: Any) -> np.ndarray:
    """An array, a Tensor or a list as a numpy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
    return np.asarray(values)


def column_of(name: str, values: Any, rows: int, default: Any) -> np.ndarray:
    """One entry for each row."""
    if values is None:
        return np.full(rows, default)
    column = as_array(values)
    if column.shape != (rows,):
        raise DataError(
            f"{name}: must be of shape ({rows},), one for each row, got {column.shape}"
        )
    return column


def _mask(name: str, values: Any, rows: int) -> np.ndarray:
    column = column_of(name, values, rows, False)
    if column.dtype.kind != "b":
        raise DataError(
            f"{name}: must be True or False for each row, but has dtype {column.dtype}"
        )
    return column


def _domain_of(client: object, domains: np.ndarray) -> str:
    """The one domain of a client's rows."""
    found = np.unique(domains).tolist()
    if len(found) > 1:
        raise DataError(
            f"client {shown(client)} has rows of {len(found)} domains, "
            f"{listed([shown(one) for one in found], 3)}. A client has one domain. "
            "Give each part a client of its own."
        )
    return str(found[0])


def _check_clients(data: FederatedData) -> None:
    """Refuse data that no run could train or score on.

    Raises
    ------
    DataError
    """
    numbers = [client.number for client in data.clients]
    if numbers != sorted(set(numbers)):
        twice = [k for k in numbers if numbers.count(k) > 1]
        problem = f"{twice[0]} occurs twice" if twice else f"they are {numbers[:5]}"
        raise DataError(f"clients: numbers must differ and ascend, but {problem}")
    unknown = {client.domain for client in data.clients} - set(data.domains)
    if unknown and data.pooled is None:
        raise DataError(f"clients: domain {min(unknown)!r} is not in domains")
    parts = [
        (f"client {client.number}, {split}", getattr(client, split))
        for client in data.clients
        for split in ("train", "test", "val")
    ]
    parts += [(f"domain {one.name!r}, test", one.test) for one in data.unseen]
    dims = {rows.dim for _, rows in parts}
    if len(dims) > 1:
        where = next(where for where, rows in parts if rows.dim != data.dim)
        raise DataError(
            f"{where}: rows have D = {min(dims - {data.dim})}, and client "
            f"{numbers[0]}'s have D = {data.dim}; embed all by one encoder"
        )
    labels = torch.cat([rows.labels for _, rows in parts])
    classes = len(data.class_names)
    if len(labels) and int(labels.max()) >= classes:
        for where, rows in parts:
            check_labels_below(rows.labels, classes, where)


def partition(
    dataset: DataSet,
    *,
    client_num: int,
    splitter: str,
    splitter_args: Sequence[Mapping[str, float]],
    seed: int,
    unseen_domains: Sequence[str] = (),
    validation: float = 0.0,
) -> FederatedData:
    """Give every client one domain and a part of its rows.

    Client k = 1..K gets the seen domain (k - 1) mod (number of seen domains). The
    splitter divides a domain's train rows among its m clients, disjointly:

    - ``iid``: at random, in equal parts.
    - ``lda`` ``[{'alpha': b}]``: for each class, proportions ~ Dirichlet(b) over the m
      clients; a client may get nothing.
    - ``domain`` ``[{'fraction': f}]``: each client gets the share f (default 1/m).
    - ``lds`` ``[{'alpha': b}]``: client k gets the share ``lds_matrix(...)[k - 1, c]``
      of class c; what no client of the domain takes is left out.
    - ``classes`` ``[{'per_client': r}]``: r classes a client, in equal parts.
    - ``subset`` ``[{'share': s}]``: the share s of one class, a little of all others.
    - ``natural`` ``[{'users_per_client': q}]``: all rows of q users.

    ``lda`` and ``lds`` also take ``min_per_class`` (default 0). Every client of the
    domain first gets so many rows of each class; the shares divide the rows that are
    left, see `Shares`. In the code published with the GGEUR paper it is called
    ``min_require_size``, and is 1 for label skew. The paper does not mention it.

    Every test row goes to exactly one client: the classes evenly, but with ``natural``
    a client gets the test rows of its own users.

    Parameters
    ----------
    dataset : DataSet
    client_num : int
        K, ``federate.client_num``: at least one for each seen domain.
    splitter, splitter_args : ``data.splitter``, ``data.splitter_args``
    seed : int
    unseen_domains : ``ggeur.unseen_domains``, names of domains that no client holds
    validation : float
        Share of a client's training rows that it sets aside (`validation_share`).

    Raises
    ------
    ConfigError
        A setting is unknown or impossible. The error names its key and what is
        accepted.
    """
    read_arguments(splitter, splitter_args)
    seen, unseen = _separate(dataset, unseen_domains)
    if client_num < len(seen):
        raise ConfigError(
            f"{setting('client_num')} is {client_num}, but there are {len(seen)} seen "
            f"domains ({', '.join(domain.name for domain in seen)}) and each needs a "
            f"client. Raise it, or name domains in {setting('unseen_domains')}."
        )
    clients = []
    for position, domain in enumerate(seen):
        members = range(position + 1, client_num + 1, len(seen))
        task = Task(domain, members, client_num, dataset.num_classes, seed)
        trains, tests = divide(splitter, splitter_args, task)
        clients += [
            ClientData(k, domain.name, domain.train.select(a), domain.test.select(b))
            for k, a, b in zip(members, trains, tests)
        ]
    return FederatedData(
        clients=tuple(
            client.hold_out(validation, seed)
            for client in sorted(clients, key=lambda client: client.number)
        ),
        domains=tuple(domain.name for domain in seen),
        unseen=unseen,
        class_names=dataset.class_names,
        encoder=dataset.encoder,
        identity=dataset.identity,
    )


def _separate(
    dataset: DataSet, unseen_domains: Sequence[str]
) -> tuple[list[Domain], tuple[Domain, ...]]:
    known = [domain.name for domain in dataset.domains]
    if isinstance(unseen_domains, str) or not set(unseen_domains) <= set(known):
        raise ConfigError(
            f"{setting('unseen_domains')} must be a list of domains of the data set, "
            f"which are {known}; got {unseen_domains!r}."
        )
    seen = [domain for domain in dataset.domains if domain.name not in unseen_domains]
    if not seen:
        raise ConfigError(
            f"{setting('unseen_domains')}: {list(unseen_domains)} leaves no domain to "
            f"train on; leave out at least one of {known}."
        )
    unseen = tuple(d for d in dataset.domains if d.name in unseen_domains)
    return seen, unseen
