"""Reads the rows of a client from the data of the run that began a book."""

from __future__ import annotations

from torch import Tensor

from federatedscope_ggeur.book.federation import Federation
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings import flatten


def rows_of_client(book: Federation, number: int) -> tuple[Tensor, Tensor, str]:
    """Read the training rows [n, D], labels [n] and domain of client `number`.

    Raises
    ------
    ConfigError, DataError
        The data of the book's settings cannot be read, or have no such client.
    """
    known = dict(flatten(default_config()))
    # A run on FederatedScope has keys that the embedded engine does not know.
    given = {key: v for key, v in flatten(book.config) if key in known}
    own = {"ggeur.book": "", "ggeur.book_steps": [], "federate.mode": "standalone"}
    data = load_federated_data(load_config(None, {**given, **own}))
    held = {client.number: client for client in data.clients}
    if number not in held:
        raise ConfigError(
            f"the data of the book's run have no client {number}, only "
            f"1..{len(held)}; give its rows by --rows FILE"
        )
    if list(data.class_names) != book.class_names[: len(data.class_names)]:
        raise ConfigError(
            "the data of the book's run now have other classes than the book; "
            "restore the data, or give rows by --rows FILE"
        )
    client = held[number]
    return client.train.features, client.train.labels, client.domain
