"""Peers on FederatedScope's streams that lie: nothing is run, read or written of them.

Who is put out for what is in `contract/test_leading.py`, and what the transport refuses
in `tests/transport/`; here it holds for the processes of a run.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign_text import FORGED, hidden_in
from processes import PATIENCE, check_same_head
from rogues import Member, handshake_of

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.transport import StreamEnded

pytestmark = pytest.mark.slow

grpc = pytest.importorskip("grpc", reason="distributed mode needs grpcio")


@pytest.fixture
def handshake(quickstart, words):
    return handshake_of(quickstart, words)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_strangers_and_members_with_pickles_run_nothing(
    fleet, embedded, handshake, tmp_path
):
    """Neither by FS's own call, nor by a frame, nor by a message of a member."""
    file = tmp_path / "executed"
    bomb = pickle.dumps(Bomb(file))
    one = fleet()
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3)]
    server.wait_for("has joined", times=3)
    with grpc.insecure_channel(f"127.0.0.1:{one.port}") as channel:
        stock = channel.unary_unary("/gRPCComServeFunc/sendMessage")
        with pytest.raises(grpc.RpcError) as refused:
            stock(bomb, timeout=PATIENCE)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        join = channel.stream_stream("/federatedscope_ggeur.Transport/Join")
        for frame in (bomb, b"H" + bomb, b"garbage"):
            with pytest.raises(grpc.RpcError) as refused:
                list(join(iter([frame]), timeout=PATIENCE))
            assert refused.value.code() == grpc.StatusCode.ABORTED
    with pytest.raises(StreamEnded, match="client 3 has joined already"):
        Member(one.port, 3, handshake)
    rogue = Member(one.port, 4, handshake)
    rogue.asked("statistics_request")
    rogue.be_put_out("metrics", 7, bomb)
    clients.append(one.client(4))
    check_same_head(server, clients, embedded())
    assert not file.exists()


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
