"""Divide a data set among clients (``data.splitter``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from federatedscope_ggeur.data.embeddings import DataSet, Domain, Embeddings
from federatedscope_ggeur.data.split import hold_out
from federatedscope_ggeur.data.splitters import Task, divide, read_arguments
from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.rng import numpy_generator


@dataclass(frozen=True)
class ClientData:
    """What one client holds; each part may have no rows.

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
        """With a share of the training rows set aside for validation, by class.

        Which ones depends on the seed and on who the client is alone.
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
        The domains that no client holds; only their test rows are scored.
    class_names : tuple of str, of length C
    encoder : str
    pooled : mapping from split ("test", "val") to mapping from domain to Embeddings
        The seen domains' rows that no client holds, where one client trains on all
        domains' rows (see `centralise`); None elsewhere.
    identity : mapping, optional
        All that embeddings depend on of the encoder, where that is known.
    pooled_clients : int
        How many clients the rows were dealt to before one got them all; 0 elsewhere.
    """

    clients: tuple[ClientData, ...]
    domains: tuple[str, ...]
    unseen: tuple[Domain, ...]
    class_names: tuple[str, ...]
    encoder: str
    pooled: Mapping[str, Mapping[str, Embeddings]] | None = None
    identity: Mapping[str, object] | None = None
    pooled_clients: int = 0

    @property
    def is_centralised(self) -> bool:
        """Whether all domains' training rows are in one place."""
        return self.pooled is not None

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
        """Every domain's whole test set, seen domains first; rows in client order."""
        return {**self.rows("test"), **{d.name: d.test for d in self.unseen}}

    def rows(self, split: str) -> dict[str, Embeddings]:
        """The seen domains' rows of a split, "train", "val" or "test", likewise."""
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
        """What a server scores a head on, by split and domain: of the `splits` all rows
        of the `seen` domains, if it holds them, and the unseen domains' test sets."""
        rows = {split: self.rows(split) if seen else {} for split in splits}
        if "test" in rows:
            rows["test"].update((domain.name, domain.test) for domain in self.unseen)
        return rows


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

    - ``iid``: at random, evenly.
    - ``lda`` ``[{'alpha': b}]``: for each class, proportions ~ Dirichlet(b) over the m
      clients; a client may get nothing.
    - ``domain`` ``[{'fraction': f}]``: each client gets the share f (default 1/m).
    - ``lds`` ``[{'alpha': b}]``: client k gets the share ``lds_matrix(...)[k - 1, c]``
      of class c; what no client of the domain takes is left out.
    - ``classes`` ``[{'per_client': r}]``: r classes a client, in equal parts.
    - ``subset`` ``[{'share': s}]``: the share s of one class, a little of all others.
    - ``natural`` ``[{'users_per_client': q}]``: all rows of q users.

    ``lda`` and ``lds`` take ``min_per_class``, too (default 0): so many rows of each
    class are dealt to every client of the domain first, and the shares are of the rows
    that are left. See `Shares`; it is ``min_require_size`` in the code published with
    the GGEUR paper, where it is 1 for label skew. The paper does not mention it.

    Test rows are always dealt out whole and disjointly: evenly in every class, but with
    ``natural`` a client gets those of its own users.

    Parameters
    ----------
    dataset : DataSet
    client_num : int
        K, ``federate.client_num``; at least the number of seen domains.
    splitter, splitter_args : ``data.splitter``, ``data.splitter_args``
    seed : int
    unseen_domains : ``ggeur.unseen_domains``, names of domains that no client holds
    validation : float
        Share of a client's training rows that it sets aside (`validation_share`).

    Raises
    ------
    ConfigError
        A setting is unknown or impossible; names its key and what is accepted.
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
