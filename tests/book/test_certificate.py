"""What a certificate proves, and which lies it finds."""

import copy
import json

import pytest
from books import new_book

from federatedscope_ggeur.book.certificate import NOT_PROVEN, verify
from federatedscope_ggeur.book.chain import new_key, signed
from federatedscope_ggeur.errors import DataError


@pytest.fixture
def book(tmp_path):
    return new_book(tmp_path / "book", (1, 2))


def plain(value):
    return json.loads(json.dumps(value))


def test_what_is_proven(book):
    receipts = {k: plain(book.receipt(k)) for k in (1, 2)}
    certificate = plain(book.certificate())
    said = verify(certificate)
    assert said[-2:] == [
        "nothing else was checked: give --book or --receipt",
        NOT_PROVEN,
    ]
    said = verify(certificate, book, receipts[1])
    assert "the head equals, to the bit, the head of the 2 entries in the book" in said
    assert "client 1 is in the book (links [1])" in said
    book.forget(1)
    said = verify(plain(book.certificate()), book, receipts[1])
    assert "client 1 is not in the book any more" in said
    assert "client 2 is in the book (links [2])" in verify(
        plain(book.certificate()), None, receipts[2]
    )
    with pytest.raises(DataError, match="the book has changed since"):
        verify(certificate, book)


def test_lies_are_found(book, tmp_path):
    receipt, certificate = plain(book.receipt(2)), plain(book.certificate())
    other = new_book(tmp_path / "other", (1, 2))
    for value in (certificate, receipt):
        forged = {**value, "kind": "something else"}
        with pytest.raises(DataError, match="the signature is wrong"):
            verify(forged) if value is certificate else verify(
                certificate, None, forged
            )
    with pytest.raises(DataError, match="another book"):
        verify(certificate, None, plain(other.receipt(2)))
    with pytest.raises(DataError, match="another book"):
        verify(certificate, other)
    with pytest.raises(DataError, match="signature"):
        verify({**certificate, "signature": signed({}, new_key())["signature"]})


def test_a_server_that_rewrites_its_chain_is_found_out(book):
    receipt, certificate = plain(book.receipt(2)), plain(book.certificate())
    rest = {
        n: v for n, v in certificate.items() if n not in ("signature", "public_key")
    }
    changed = copy.deepcopy(rest)
    changed["links"][2]["when"] = "2001-01-01T00:00:00+00:00"
    lie = signed(changed, book._key)  # the server signs its lie itself
    with pytest.raises(DataError, match="chain was rewritten after the receipt"):
        verify(lie, None, receipt)
    changed = copy.deepcopy(rest)
    changed["links"][1]["when"] = "2001-01-01T00:00:00+00:00"
    with pytest.raises(DataError, match="link 2 does not follow"):
        verify(signed(changed, book._key), None, receipt)
    changed = {**rest, "head_sha256": "0" * 64}
    with pytest.raises(DataError, match="head was not made from"):
        verify(signed(changed, book._key), book)
