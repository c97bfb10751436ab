"""Peers on FederatedScope's streams that lie: a server's memory, and FS's logs.

Who is put out for what is in `contract/test_leading.py`, and what the transport refuses
in `tests/engines/sites/transport/`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign_text import FORGED, hidden_in
from processes import PATIENCE, Stuck, check_same_head

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Link,
    StreamEnded,
    TransportSettings,
)
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.federation.wire.schema import Declared

pytestmark = pytest.mark.slow

grpc = pytest.importorskip("grpc", reason="distributed mode needs grpcio")


#: Of the embeddings that the tests' workers read.
NAMES, DIM = tuple(str(label) for label in range(12)), 16
ENCODER = "unknown (precomputed embeddings)"


@pytest.fixture
def handshake(quickstart, words):
    """What the workers have alike."""
    settings = agreed_settings(load_config(quickstart, words))
    return Handshake(NAMES, DIM, ENCODER, settings)


class Member:
    """A member that joins as it should; what it says then is up to the test."""

    def __init__(self, port: int, number: int, handshake: Handshake, domain="art"):
        self.number = number
        join = Join(number, domain, handshake, Declared())
        envelope = Envelope("join_in", 0, (join.to_bytes(),))
        settings = TransportSettings(2**30, join_deadline=PATIENCE)
        self.link = Link(f"127.0.0.1:{port}", number, envelope, settings)

    def asked(self, kind: str) -> Envelope:
        """The next request, which must be of this kind."""
        envelope = self.link.receive(PATIENCE)
        assert envelope is not None, f"client {self.number} was not asked for {kind}"
        assert envelope.kind == kind
        return envelope

    def say(self, kind: str, state: int = 0, *parts: bytes) -> None:
        self.link.send(Envelope(kind, state, parts))

    def end(self) -> str:
        """How the server ends its stream."""
        try:
            while self.link.receive(PATIENCE) is not None:
                pass
        except StreamEnded as ended:
            return str(ended)
        finally:
            self.link.close(0.1)
        raise Stuck(f"nobody ended the stream of client {self.number}")


def peak(server) -> int:
    """Bytes of a process' memory at its peak."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_tensor_that_nobody_asked_for_is_not_even_read(fleet, handshake):
    one = fleet("ggeur.quorum", 3)
    server = one.server(actions={"checkpoint 3": "hold"})
    clients = [one.client(number) for number in (1, 2, 3)]
    server.wait_for("has joined", times=3)
    rogue = Member(one.port, 4, handshake)
    rogue.asked("statistics_request")
    before = peak(server)
    tensors = {"params": torch.zeros(3), "junk": torch.zeros(70_000_000)}
    rogue.say("statistics", 0, wire.pack("update", {"client": 4}, tensors))
    server.wait_for("client 4 refused: field 'sizes': a message may have")
    server.wait_for("checkpoint 3", "trace")
    assert peak(server) < before + 140_000_000  # half of it
    server.open_gate()
    rogue.end()
    assert [worker.wait() for worker in (server, *clients)] == [0] * 4


def test_nobody_writes_lines_of_others(fleet, embedded, handshake):
    """Into FS's logs: by a domain's name, by an error, or by an encoder's name."""
    one = fleet()
    server = one.server()
    server.wait_for("listening on")
    text = f"art\n{FORGED}\r\x1b[2J\u202e{'x' * 20_000}"
    rogue = Member(one.port, 4, handshake, domain=text)
    server.wait_for("client 4 (domain art")
    rogue.say("failed", 0, text.encode())
    server.wait_for("client 4 is gone")
    liar = Member(one.port, 3, replace(handshake, encoder=text))
    server.wait_for("client 3 (domain art")
    clients = [one.client(number) for number in (1, 2, 4)]
    assert not hidden_in(liar.end())  # most have another encoder
    clients.append(one.client(3))
    check_same_head(server, clients, embedded())
    for worker in (server, *clients):
        said = re.sub(r"\x1b\[[\d;]+m", "", worker.output)  # FS's own colours
        assert not hidden_in(said)
        lines = said.splitlines()
        assert not [line for line in lines if line.startswith(FORGED)]
        assert max(map(len, lines)) < 12_000
