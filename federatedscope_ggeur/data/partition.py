"""Divide a data set among clients (``data.splitter``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from federatedscope_ggeur.errors import ConfigError, DataError, listed, setting, shown
from federatedscope_ggeur.machine import plain_torch

from .clients import SPLITS, ClientData, ClientRanges, all_rows, held_lazily, held_out
from .embeddings import DataSet, Domain, Embeddings, check_alike
from .encoders import EncoderSettings
from .labels import POSITIONS, as_array, checked_names, classes_of, numbered
from .rows import NOT_KNOWN, Given, Rows, column_of, mask_of, weights_of
from .splitters import Task, divide, read_arguments
from .torch_datasets import embed_datasets

#: The domain of rows that come without a domain.
ALL = "all"
#: The number of rows that are compared at a time.
_COMPARED = 4096


@dataclass(frozen=True)
class FederatedData:
    """A data set divided among clients.

    Parameters
    ----------
    clients : sequence of ClientData
        The clients in the order of their numbers 1, 2, ..., K.
    domains : tuple of str
        The seen domains, each held by at least one client.
    unseen : tuple of Domain
        The domains that no client holds. Only their test rows are used, for scores.
    class_names : tuple of str, of length C
    encoder : str
    pooled : mapping from split ("test", "val") to mapping from domain to Embeddings
        If one client trains on the rows of all domains (see `centralise`), the other
        rows of the seen domains, which no client holds. Otherwise None.
    identity : mapping, optional
        All properties of the encoder that the embeddings depend on. None if unknown.
    pooled_clients : int
        The number of clients that held the training rows before one client got them
        all. 0 if the rows never moved.
    given : Given, optional
        How the rows were given, and what was done to them since.
    pool : str, optional
        The `pool_hash` of the data set that was divided. None if the rows came divided.
    """

    clients: Sequence[ClientData]
    domains: tuple[str, ...]
    unseen: tuple[Domain, ...]
    class_names: tuple[str, ...]
    encoder: str
    pooled: Mapping[str, Mapping[str, Embeddings]] | None = None
    identity: Mapping[str, object] | None = None
    pooled_clients: int = 0
    given: Given = NOT_KNOWN
    pool: str | None = None

    def __post_init__(self):
        checked_names(self.class_names, "class_names")
        _check_clients(self)

    @classmethod
    @plain_torch()
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
        weights: Any = None,
        encoder: str = "arrays",
        copy: bool = True,
    ) -> FederatedData:
        """Make data from arrays, Tensors or lists that have one entry for each of n
        rows.

        Parameters
        ----------
        features : array of shape (n, D)
            A data frame's titles are kept: other rows are put in their order.
        labels : array of shape (n,)
            Class names, as texts or whole numbers. With `class_names`, whole numbers
            are positions in it.
        clients : array of shape (n,), optional
            The client of each row. Clients are numbered from 1 in the order of these
            values. By default one client holds all rows.
        domains : array of shape (n,), optional
            The domain of each row. All rows of a client must have the same domain. By
            default there is one domain.
        test, validation : bool arrays of shape (n,), optional
            The rows to test on, and the rows to validate on. All other rows are for
            training.
        class_names : sequence of str, optional
            The names of the classes, in order. By default the names among the labels:
            numbers by size, or texts sorted.
        users : int array of shape (n,), optional
            The user who made each row.
        weights : array of shape (n,), optional
            What each row counts for in statistics: positive numbers, by default 1. Only
            some one-shot heads know weights; runs of others refuse them.
        encoder : str
            A description of the encoder in one line.
        copy : bool
            Set False if nobody changes `features` from now on. Then float32 rows that
            are in order already are not copied. The order is by split (training, test,
            validation), then by domain, then by client.

        Raises
        ------
        DataError
            The data cannot be used. The error names the first row with the problem.
        """
        rows_in = Rows.of(features, labels, "arrays", users=users)
        if class_names is not None:
            class_names = checked_names(class_names, "class_names")
        if len(rows_in) == 0:
            raise DataError(
                "arrays: 'features' and 'labels' have no rows; give at least one."
            )
        assert rows_in.labels is not None, "they were given"
        names, how = classes_of({"arrays": rows_in.labels}, class_names, "arrays")
        codes = numbered(rows_in.labels, names, how, "arrays")
        rows = Embeddings.of_rows(rows_in, codes, ALL, copy=False)
        n = len(rows)
        if weights is not None:
            rows = rows.weighted(weights_of(weights, n))
        client_of = column_of("clients", clients, n, 1)
        domain_of = column_of("domains", domains, n, ALL)
        is_test = mask_of("test", test, n)
        is_val = mask_of("validation", validation, n)
        if (is_test & is_val).any():
            row = int((is_test & is_val).argmax())
            raise DataError(
                f"row {row} is both a test and a validation row; make it one of them."
            )
        owners, firsts, owner = np.unique(
            client_of, return_index=True, return_inverse=True
        )
        domain_names, code = np.unique(domain_of, return_inverse=True)
        code_of = code[firsts]
        mixed = owner[code != code_of[owner]]
        if len(mixed):
            _refuse_domains(owners.tolist()[mixed[0]], domain_of[owner == mixed[0]])
        # In this order each client's part of a split is a range of its domain's rows.
        split = np.select([is_test, is_val], [1, 2], 0)
        order = np.lexsort((owner, code, split))
        if (np.diff(order) < 0).any():
            rows = rows.select(order)
        elif copy and np.may_share_memory(rows_in.features, as_array(features)):
            rows = rows.copied()
        parts: dict[str, dict[str, Embeddings]] = {}
        sizes, last = {}, 0
        for place, name in enumerate(SPLITS):
            sizes[name] = np.bincount(owner[split == place], minlength=len(owners))
            parts[name] = {}
            for number, domain in enumerate(domain_names.tolist()):
                first, held = last, sizes[name][code_of == number]
                last = first + int(held.sum())
                part = rows.between(first, last).of_domain(str(domain))
                parts[name][str(domain)] = part
        domain_of_each = [str(domain_names[number]) for number in code_of.tolist()]
        return cls(
            ClientRanges(range(1, len(owners) + 1), domain_of_each, parts, sizes),
            tuple(dict.fromkeys(domain_of_each)),
            (),
            names,
            encoder,
            given=Given(how, rows_in.titles),
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
        """Make data from one image data set for each client, in torchvision's style.

        Parameters
        ----------
        datasets : mapping from client to data set
            The clients are numbered from 1 in this order.
        encoder : str or EncoderSettings
        domains : mapping from client to str, optional
            The domain of each client. By default there is one domain.
        more
            Test sets, class names, cache and device, as for `embed_datasets`. The
            errors are the same, too.
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
            given=Given(POSITIONS),
        )

    def mapped(
        self, change: Callable[[Embeddings], Embeddings], **more: Any
    ) -> FederatedData:
        """The data with `change` of all their rows, and other values of fields."""
        clients = self.clients
        if isinstance(clients, ClientRanges):
            clients = clients.mapped(change)
        else:
            clients = tuple(client.mapped(change) for client in clients)
        unseen = (Domain(d.name, change(d.train), change(d.test)) for d in self.unseen)
        pooled = self.pooled and {
            split: {domain: change(rows) for domain, rows in domains.items()}
            for split, domains in self.pooled.items()
        }
        return replace(
            self,
            clients=clients,
            unseen=tuple(unseen),
            pooled=pooled,
            pool=None,
            **more,
        )

    def without(self, domains: Sequence[str]) -> FederatedData:
        """The data with these domains for the test alone: no client holds them.

        Domains that are so already stay. The clients of the others keep their numbers.

        Raises
        ------
        ConfigError
            There is no such domain, or none is left to train on.
        """
        _check_unseen([*self.domains, *(d.name for d in self.unseen)], domains)
        held_back = [name for name in self.domains if name in domains]
        if not held_back:
            return self
        train, test = self.rows("train"), self.rows("test")
        unseen = (Domain(name, train[name], test[name]) for name in held_back)
        clients = (one for one in self.clients if one.domain not in held_back)
        return replace(
            self,
            clients=tuple(clients),
            domains=tuple(name for name in self.domains if name not in held_back),
            unseen=(*self.unseen, *unseen),
        )

    @property
    def is_centralised(self) -> bool:
        """Whether one client has the training rows of all domains."""
        return self.pooled is not None

    def all_rows(self) -> Iterator[tuple[str, Embeddings]]:
        """Yield all rows with their split: clients', the server's, unseen domains'."""
        yield from all_rows(self.clients)
        for split, domains in (self.pooled or {}).items():
            yield from ((split, rows) for rows in domains.values())
        yield from (("test", domain.test) for domain in self.unseen)

    def faults(self) -> list[str]:
        """Why no head can learn, or why scores may be too good.

        There may be only one class, only equal rows, or test rows that are training
        rows, too.
        """
        rows = [part for split, part in all_rows(self.clients) if split == "train"]
        rows = [part for part in rows if len(part)]
        if not rows:
            return ["no client has rows to train on: no head learns anything"]
        labels = torch.cat([part.labels for part in rows]).unique()
        if len(labels) == 1:
            name = shown(self.class_names[int(labels[0])])
            return [
                f"all training rows are of one class, {name}: no head learns anything"
            ]
        first = rows[0].features[:1]
        # The first row that differs ends the search.
        pieces = (piece for part in rows for piece in part.features.split(_COMPARED))
        if all(bool((piece == first).all()) for piece in pieces):
            return ["all training rows are equal, so no head can tell classes apart"]
        tests = [part for split, part in self.all_rows() if split == "test"]
        of_tests, of_rows = _row_hashes(tests), _row_hashes(rows)
        known = np.isin(of_tests, of_rows) if len(of_tests) else of_tests
        if not known.any():
            return []
        problem = (
            f"{known.sum()} of {len(known)} test rows equal training rows, so scores "
            "may be too good; "
        )
        _, places, times = np.unique(of_rows, return_inverse=True, return_counts=True)
        twins = times[places] > 1
        # Of rows that take few values, many are equal by chance.
        if twins.mean() < known.mean() / 2:
            return [problem + "remove these rows from the test set"]
        return [
            f"{problem}but {twins.sum()} of {len(twins)} training rows equal each "
            "other, too: remove only test rows that are copies"
        ]

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights."""
        return self.clients[0].train.weights is not None

    @property
    def dim(self) -> int:
        """D, the length of one embedding."""
        return self.clients[0].train.dim

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width) of images, if rows are pixels; else None."""
        return self.clients[0].train.image_shape

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""
        return len(self.class_names)

    def test_sets(self) -> dict[str, Embeddings]:
        """The test set of each domain, seen domains first.

        The rows of a seen domain are in client order.
        """
        return {**self.rows("test"), **{d.name: d.test for d in self.unseen}}

    def rows(self, split: str) -> dict[str, Embeddings]:
        """The rows that each seen domain has in a split, in client order.

        `split` is "train", "val" or "test".
        """
        if self.pooled is not None and split in self.pooled:
            return dict(self.pooled[split])
        clients = self.clients
        if isinstance(clients, ClientRanges):
            return {name: clients.rows[split][name] for name in self.domains}
        together = self.is_centralised
        names = [clients[0].domain] if together else self.domains
        parts: dict[str, list[Embeddings]] = {name: [] for name in names}
        for client in clients:
            parts[client.domain].append(getattr(client, split))
        return {name: Embeddings.concatenate(held) for name, held in parts.items()}

    def server_rows(
        self, splits: Sequence[str], seen: bool
    ) -> dict[str, dict[str, Embeddings]]:
        """The rows on which the server scores a head, by split and domain.

        If the server holds the rows of `seen` domains, these are all their rows in
        `splits`. If "test" is in `splits`, the test sets of unseen domains are there,
        too.
        """
        rows = {split: self.rows(split) if seen else {} for split in splits}
        if "test" in rows:
            rows["test"].update((domain.name, domain.test) for domain in self.unseen)
        return rows


def _row_hashes(parts: Sequence[Embeddings]) -> np.ndarray:
    """A hash of each row: int64 array. It differs from process to process."""
    hashes = (hash(row.tobytes()) for part in parts for row in part.features.numpy())
    return np.fromiter(hashes, np.int64)


def _refuse_domains(client: object, domains: np.ndarray) -> None:
    names = np.unique(domains).tolist()
    raise DataError(
        f"client {shown(client)} has rows of {len(names)} domains, "
        f"{listed([shown(one) for one in names], 3)}. A client has only one domain. "
        "Make a client for each domain."
    )


def _check_clients(data: FederatedData) -> None:
    """Refuse data on which no run could train or be scored.

    Raises
    ------
    DataError
        Client numbers, domains, dimensions or labels are wrong.
    """
    clients = data.clients
    numbers = [client.number for client in held_lazily(clients)]
    if numbers != sorted(set(numbers)):
        twice = [k for k in numbers if numbers.count(k) > 1]
        problem = f"{twice[0]} occurs twice" if twice else f"they are {numbers[:5]}"
        raise DataError(f"clients: numbers must differ and ascend, but {problem}")
    unknown = {client.domain for client in held_lazily(clients)} - set(data.domains)
    if unknown and data.pooled is None:
        raise DataError(f"clients: domain {min(unknown)!r} is missing in 'domains'")
    try:  # in few pieces, since there may be many clients
        check_alike((("", rows) for _, rows in data.all_rows()), data.num_classes)
    except DataError:
        check_alike(_named(data), data.num_classes)  # it names the client
        raise


def _named(data: FederatedData) -> Iterator[tuple[str, Embeddings]]:
    """Yield all rows with the name that errors give them."""
    for client in data.clients:
        for split in SPLITS:
            yield f"client {client.number}, {split}", getattr(client, split)
    for one in data.unseen:
        yield f"domain {one.name!r}, test", one.test


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
    """Divide a data set among clients. Every client gets a part of one domain.

    Client k = 1..K gets the seen domain (k - 1) mod (number of seen domains). The
    splitter divides a domain's train rows among its m clients, disjointly:

    - ``iid``: at random, in equal parts.
    - ``lda`` ``[{'alpha': b}]``: for each class, proportions ~ Dirichlet(b) over the m
      clients; a client may get nothing.
    - ``domain`` ``[{'fraction': f}]``: each client gets the share f of the rows
      (default 1/m).
    - ``lds`` ``[{'alpha': b}]``: client k gets the share ``lds_matrix(...)[k - 1, c]``
      of class c. The rest of the domain's rows is left out.
    - ``classes`` ``[{'per_client': r}]``: r classes a client, in equal parts.
    - ``subset`` ``[{'share': s}]``: the share s of one class, and a little of all
      others.
    - ``natural`` ``[{'users_per_client': q}]``: all rows of q users.

    ``lda`` and ``lds`` also take ``min_per_class`` (default 0). Every client of the
    domain first gets this many rows of each class. The shares divide the rows that are
    left, see `Shares`. The published code of the GGEUR paper calls it
    ``min_require_size``, and uses 1 for label skew. The paper does not mention it.

    Every test row goes to exactly one client. Each class is divided evenly, but with
    ``natural`` a client gets the test rows of its own users.

    Parameters
    ----------
    dataset : DataSet
    client_num : int
        K, ``federate.client_num``. There must be at least one client for each seen
        domain.
    splitter, splitter_args : ``data.splitter``, ``data.splitter_args``
    seed : int
    unseen_domains : ``ggeur.unseen_domains``, names of domains that no client holds
    validation : float
        The share of its training rows that a client sets aside (`validation_share`).

    Raises
    ------
    ConfigError
        A setting is unknown or impossible. The error names its key and what is
        accepted.
    """
    read_arguments(splitter, splitter_args)
    _check_unseen([domain.name for domain in dataset.domains], unseen_domains)
    seen = [domain for domain in dataset.domains if domain.name not in unseen_domains]
    unseen = tuple(d for d in dataset.domains if d.name in unseen_domains)
    if client_num < len(seen):
        raise ConfigError(
            f"{setting('client_num')} is {client_num}, but there are {len(seen)} seen "
            f"domains ({', '.join(domain.name for domain in seen)}), and each needs a "
            f"client. Raise the number, or name domains in {setting('unseen_domains')}."
        )
    domains = [seen[k % len(seen)].name for k in range(client_num)]
    sizes = {split: np.zeros(client_num, dtype=np.int64) for split in SPLITS}
    rows: dict[str, dict[str, Embeddings]] = {split: {} for split in SPLITS}
    for position, domain in enumerate(seen):
        members = range(position + 1, client_num + 1, len(seen))
        task = Task(domain, members, client_num, dataset.num_classes, seed)
        trains, tests = divide(splitter, splitter_args, task)
        vals = [part[:0] for part in trains]
        if validation:
            labels = domain.train.labels.numpy()
            for i, (k, part) in enumerate(zip(members, trains)):
                train, val = held_out(labels[part], validation, seed, domain.name, k)
                trains[i], vals[i] = part[train], part[val]
        for split, parts, held in (
            ("train", trains, domain.train),
            ("test", tests, domain.test),
            ("val", vals, domain.train),
        ):
            rows[split][domain.name] = _dealt(held, parts)
            sizes[split][position :: len(seen)] = list(map(len, parts))
    return FederatedData(
        clients=ClientRanges(range(1, client_num + 1), domains, rows, sizes),
        domains=tuple(domain.name for domain in seen),
        unseen=unseen,
        class_names=dataset.class_names,
        encoder=dataset.encoder,
        identity=dataset.identity,
        given=dataset.given,
    )


def _dealt(rows: Embeddings, parts: Sequence[np.ndarray]) -> Embeddings:
    """The rows of a domain in the order of its clients; `parts` has their indices."""
    order = np.concatenate(parts)
    in_place = len(order) == len(rows) and bool((order == np.arange(len(rows))).all())
    return rows if in_place else rows.select(order)


def _check_unseen(known: Sequence[str], unseen_domains: Sequence[str]) -> None:
    """Require some of the `known` domains as unseen ones, but not all."""
    if isinstance(unseen_domains, str) or not set(unseen_domains) <= set(known):
        raise ConfigError(
            f"{setting('unseen_domains')} must be a list of domains of the data set, "
            f"which are {known}; got {unseen_domains!r}."
        )
    if set(known) <= set(unseen_domains):
        raise ConfigError(
            f"{setting('unseen_domains')}: {list(unseen_domains)} leaves no domain to "
            f"train on; remove at least one of {known} from it."
        )


ALL_DOMAINS = "all domains"


def centralise(data: FederatedData) -> FederatedData:
    """Give the training rows of all clients to one client, number 1.

    Validation and test rows stay with their clients.

    Parameters
    ----------
    data : FederatedData
        The data. If one client has all training rows already, they are returned
        unchanged.

    Returns
    -------
    FederatedData
        The data with one client, which holds the training rows in the order of the
        former clients. `test_sets` and `rows` of the other splits are as before.
    """
    if data.is_centralised:
        return data
    parts = [client.train for client in data.clients]
    train = Embeddings.concatenate(parts, ALL_DOMAINS)
    pooled = ClientData(1, ALL_DOMAINS, train, train.select([]))
    apart = {split: data.rows(split) for split in ("val", "test")}
    return replace(
        data, clients=(pooled,), pooled=apart, pooled_clients=len(data.clients)
    )


_BYTES = 32
_MODULUS = 1 << (8 * _BYTES)


def fingerprint(data: FederatedData) -> tuple[int, str]:
    """The number of all rows, and a hash of them.

    The hash covers the rows with their labels, weights and splits. It is made from the
    sum of the rows' own hashes (BLAKE2b). So the order of the rows does not matter, nor
    which client holds them.

    Returns
    -------
    rows : int
        The number of rows of all splits.
    sha256 : str
        The hash, in 64 hexadecimal digits.
    """
    parts = list(data.all_rows())
    return sum(len(rows) for _, rows in parts), _hash_of(parts)


def pool_hash(dataset: DataSet) -> str:
    """A hash of all rows of a data set as `fingerprint` makes it, without splits.

    It is the same for all seeds, as long as the splits use all rows.
    """
    return _hash_of(("", rows) for _, rows in dataset.all_rows())


def _hash_of(parts: Iterable[tuple[str, Embeddings]]) -> str:
    hashes = (n for split, rows in parts for n in rows.hashes(split, _BYTES))
    total = sum(hashes) % _MODULUS
    return hashlib.sha256(total.to_bytes(_BYTES, "little")).hexdigest()
