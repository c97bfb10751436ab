"""A run fills a federation's book: the same on every engine."""

from __future__ import annotations

import json
import re

import pytest
from standalone import assert_same

from federatedscope_ggeur.book.certificate import verify
from federatedscope_ggeur.book.federation import Federation
from federatedscope_ggeur.engines.run import Run

LDA = ["ggeur.closed_form", "lda", "ggeur.book"]


def assert_alike(*books):
    """The same clients, with the same integers, and so the same heads."""
    first, *others = (Federation.load(book) for book in books)
    assert first.clients == [1, 2, 3, 4]
    for other in others:
        assert other.domains == first.domains
        assert all(other.total([k]) == first.total([k]) for k in first.clients)


def test_embedded_and_standalone_fill_the_same_book(fs, config, tmp_path):
    settings = ["federate.client_num", 4, "ggeur.privacy.min_samples", 2]
    there = fs.run(*settings, *LDA, str(tmp_path / "fs"))
    here = Run(config(*settings, *LDA, str(tmp_path / "embedded")))
    assert_same(there, here)
    assert_alike(tmp_path / "fs", tmp_path / "embedded")
    book = Federation.load(tmp_path / "fs")
    book.forget(2)
    assert not (there.folder / "head.safetensors").exists()
    wanted = Federation.load(tmp_path / "embedded").head([1, 3, 4]).model
    found = book.head().model
    assert all((a == b).all() for a, b in zip(wanted.parameters(), found.parameters()))


@pytest.mark.slow
def test_distributed_fills_the_same_book_and_hands_out_receipts(
    fleet, embedded, tmp_path
):
    one = fleet(*LDA, str(tmp_path / "fs"))
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    for worker in (server, *clients):
        assert worker.wait() == 0
    embedded(*LDA, str(tmp_path / "embedded"))
    assert_alike(tmp_path / "fs", tmp_path / "embedded")
    certificate = Federation.load(tmp_path / "fs").certificate()
    for number, client in enumerate(clients, 1):
        text = re.search(r"receipt of the book: (\{.*\})", client.output)[1]
        said = verify(certificate, receipt=json.loads(text))
        assert any(f"client {number} is in the book" in line for line in said)
