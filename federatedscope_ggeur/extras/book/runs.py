"""Runs with the clients of a book, on a machine that has these clients' data.

Checks a certificate, also against the book or a client's receipt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur.fs_keys import open_sections
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config, to_plain
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.errors import ConfigError, DataError, listed
from federatedscope_ggeur.settings import flatten

from .chain import check_chain, check_signed, check_types, present
from .federation import Federation
from .grid import GridStatistics


def statistics_of_client(book: Federation, number: int) -> tuple[GridStatistics, str]:
    """The statistics of client `number` for the book, and its domain.

    Raises
    ------
    ConfigError, DataError
        The data of the book's settings cannot be read, or have no such client.
    """
    data = load_federated_data(_config(book))
    held = {client.number: client for client in data.clients}
    if number not in held:
        raise ConfigError(
            f"the data of the book's run have no client {number}, only "
            f"1..{len(held)}; give its rows by --rows FILE"
        )
    _check_classes(book, data)
    client = held[number]
    rows = client.train.features, client.train.labels
    return book.statistics_of(*rows), client.domain


def new_run(
    book: Federation, settings: Sequence | Mapping
) -> tuple[CfgNode, FederatedData]:
    """The config and data of a new run with the clients that are in the book now.

    The config is that of the book's run, without the book and the head in closed form,
    and with `settings`. The clients keep their numbers. So the run gives the same bits
    as a run of these settings that never had the other clients.

    Raises
    ------
    ConfigError, DataError
        The data cannot be read, or differ from the rows in the book: a client may have
        withdrawn rows or sent others. Or `settings` name a checkpoint.
    """
    cfg = _config(book, {"ggeur.closed_form": "none"}, settings)
    if cfg.federate.save_to or cfg.federate.restore_from:
        raise ConfigError(
            "federate.save_to, federate.restore_from: remove them for a new run with a "
            "book's clients. The run starts at round 0 and writes its checkpoints into "
            "its own folder, so that the book can delete them with a client"
        )
    data = load_federated_data(cfg)
    _check_classes(book, data)
    clients = [client for client in data.clients if client.number in book.clients]
    other = set(book.clients) - {client.number for client in clients}
    for client in clients:
        rows = book.statistics_of(client.train.features, client.train.labels)
        if rows != book.total([client.number]):
            other.add(client.number)
    if other or not clients:
        who = listed([f"client {k}" for k in sorted(other)], 5) or "any client"
        raise ConfigError(
            f"the data of the book's run are not the rows in the book of {who}: it "
            "withdrew some, or they lie elsewhere. Begin a new run with the rows that "
            "are left"
        )
    domains = tuple(d for d in data.domains if d in {c.domain for c in clients})
    own = {"federate.client_num": len(clients)}
    return (
        load_config(to_plain(cfg), own),
        replace(data, clients=clients, domains=domains),
    )


def _config(
    book: Federation, own: Mapping = {}, settings: Sequence | Mapping = ()
) -> CfgNode:
    """The config of the book's run on the embedded engine, without the book.

    It raises `ConfigError` if sites hold the rows.
    """
    run = {key: dict(book.config.get(key, {})) for key in ("federate", "data")}
    if run["federate"].get("mode") == "distributed" and not run["data"]["splitter"]:
        raise ConfigError(
            "the rows of the book's run lie at its sites, not here. If a client joins, "
            "give its rows by --rows FILE. To train a head, begin a new run with the "
            "sites that are left"
        )
    known = {*dict(flatten(default_config())), "data.transform"}
    # A run on FederatedScope has keys that the embedded engine does not know.
    given = {
        key: value
        for key, value in flatten(book.config)
        if key in known or key.rpartition(".")[0] in open_sections()
    }
    alone: dict[str, object] = {
        "ggeur.book": "",
        "ggeur.book_steps": [],
        "federate.mode": "standalone",
        "federate.save_to": "",
        "federate.restore_from": "",
    }
    base = load_config(None, {**given, **alone, **own})
    return load_config(base, settings) if settings else base


def _check_classes(book: Federation, data: FederatedData) -> None:
    if list(data.class_names) != book.class_names[: len(data.class_names)]:
        raise ConfigError("the data of the book's run have other classes than the book")


#: What no certificate proves.
NOT_PROVEN = (
    "it does not prove that no copy exists elsewhere: a server that kept one can let "
    "the same rows join again under another client's number"
)
_CERTIFICATE = {
    "kind": (str,),
    "links": (list,),
    "head_sha256": (str,),
    "versions": (dict,),
    "public_key": (str,),
}
_RECEIPT = {
    "kind": (str,),
    "book": (str,),
    "client": (int,),
    "link": (int,),
    "hash": (str,),
    "public_key": (str,),
}


def verify(
    certificate: Mapping[str, Any],
    book: Federation | None = None,
    receipt: Mapping[str, Any] | None = None,
) -> list[str]:
    """Check a certificate; returns a line for each fact that it proves.

    Parameters
    ----------
    certificate : mapping
        From `Federation.certificate`.
    book : Federation, optional
        With it, `verify` computes the head again and compares it to the bit.
    receipt : mapping, optional
        A client's receipt, from `Federation.receipt`. The chain must continue from it.
        `verify` says whether the client still has an entry.

    Raises
    ------
    DataError
        A signature is wrong, somebody rewrote the chain, or the certificate belongs to
        another head or another book.
    """
    known = _checked(certificate, "certificate", _CERTIFICATE)
    key = known["public_key"]
    links = check_chain(known["links"], key)
    if not links:
        raise DataError("the certificate: its chain has no links")
    said = [f"the signature is right, by the key {key}"]
    if book is not None:
        book.check_certificate(certificate)
        said.append(
            f"the head equals, to the bit, the head of the {len(present(links))} "
            "entries in the book"
        )
    if receipt is not None:
        mine = _checked(receipt, "receipt", _RECEIPT)
        if mine["public_key"] != key or mine["book"] != links[0].hash:
            raise DataError("the receipt belongs to another book than the certificate")
        if (
            not 0 <= mine["link"] < len(links)
            or links[mine["link"]].hash != mine["hash"]
        ):
            raise DataError("the chain was rewritten after the receipt was made")
        own = [n for n, link in present(links).items() if link.who == mine["client"]]
        ever = any(n.who == mine["client"] and n.commitment for n in links)
        gone = "not in the book any more" if ever else "in no entry of the book, ever"
        what = f"in the book (links {own})" if own else gone
        said.append(f"the chain continues from the receipt's link {mine['link']}")
        said.append(f"client {mine['client']} is {what}")
    if book is None and receipt is None:
        said.append("nothing else was checked: give --book or --receipt")
    return [*said, NOT_PROVEN]


def _checked(value: Any, kind: str, types: Mapping[str, tuple]) -> dict[str, Any]:
    """`value` without its signature, which is right, as are the types of its fields."""
    known = check_signed(value, f"the {kind}")
    try:
        check_types(known, types)
    except TypeError as error:
        raise DataError(f"the {kind} is damaged: {error}") from None
    if known["kind"] != kind:
        raise DataError(f"the {kind}: this is not a {kind} of a book")
    return known
