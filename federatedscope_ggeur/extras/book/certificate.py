"""Checks a certificate, also against the book or a client's receipt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from federatedscope_ggeur.errors import DataError

from .chain import check_chain, check_signed, check_types, present
from .federation import Federation

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
        what = f"in the book (links {own})" if own else "not in the book any more"
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
