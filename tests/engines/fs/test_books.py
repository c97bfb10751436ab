"""A run fills a federation's book: the same on every engine."""

from __future__ import annotations

import json
import re

import pytest
from safetensors.torch import load, load_file
from standalone import assert_same

from federatedscope_ggeur.book.certificate import verify
from federatedscope_ggeur.book.federation import Federation
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import Run

LDA = ["ggeur.closed_form", "lda", "ggeur.book"]
#: Three clients, each with a domain of its own; and the same without the second one.
DOMAINS = [
    "data.splitter", "iid", "data.splitter_args", "[]", "federate.client_num", 3,
    "ggeur.privacy.min_samples", 2,
]  # fmt: skip
NEVER = ["federate.client_num", 2, "ggeur.unseen_domains", "['photo']"]


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
    assert (there.folder / "head.safetensors").exists()
    head_after_forgetting(tmp_path / "fs", 2)
    assert not (there.folder / "head.safetensors").exists()


def head_after_forgetting(book, client):
    """The head that the command leaves."""
    assert main(["update", str(book), "--forget", str(client)]) == 0
    (folder,) = (book / "runs").glob("*_forget")
    return load_file(folder / "head.safetensors")


def assert_never_had(book, heads):
    """Forgetting the client of "photo" gives the heads of runs without it."""
    domains = Federation.load(book).domains
    assert sorted(domains.values()) == ["art", "photo", "sketch"]
    (client,) = (k for k, domain in domains.items() if domain == "photo")
    found = head_after_forgetting(book, client)
    for head in heads:
        assert head.keys() == found.keys()
        assert all(found[name].equal(head[name]) for name in head)


def test_forgetting_gives_the_head_of_a_run_without_the_client(fs, config, tmp_path):
    settings = [*DOMAINS, *LDA]
    fs.run(*settings, tmp_path / "fs")
    Run(config(*settings, tmp_path / "embedded")).follow(lambda record: None)
    there = fs.run(*settings, tmp_path / "fs never", *NEVER)
    here = Run(config(*settings, tmp_path / "embedded never", *NEVER))
    here.follow(lambda record: None)
    for book in (tmp_path / "fs", tmp_path / "embedded"):
        assert_never_had(book, (there.model, load(here.history.head_bytes())))


@pytest.mark.slow
def test_distributed_forgets_as_if_it_had_never_had_the_client(fleet, tmp_path):
    servers = []
    for name, more, clients in (("with", [], 3), ("never", NEVER, 2)):
        one = fleet(*DOMAINS, *more, *LDA, tmp_path / name)
        workers = [one.server(), *(one.client(k + 1) for k in range(clients))]
        assert [worker.wait() for worker in workers] == [0] * len(workers)
        servers.append(workers[0])
    old, never = (load_file(s.run_folder / "head.safetensors") for s in servers)
    assert not old["classifier.weight"].equal(never["classifier.weight"])
    assert_never_had(tmp_path / "with", [never])
    assert not (servers[0].run_folder / "head.safetensors").exists()


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
