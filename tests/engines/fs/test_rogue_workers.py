"""Who may not join a distributed run, and members that do not keep to the rules.

Tests of engines/fs/channel.py.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from processes import PATIENCE, Stuck, check_same_head

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.transport import (
    Envelope,
    Link,
    StreamEnded,
    TransportSettings,
)

pytestmark = pytest.mark.slow

grpc = pytest.importorskip("grpc", reason="distributed mode needs grpcio")

GOOD = (1, 2, 3)


def trained(server) -> list[list[int]]:
    return [record["clients"] for record in server.results["rounds"]]


def statuses(*workers) -> list[int]:
    return [worker.wait() for worker in workers]


# Joining.


@pytest.fixture
def other_data(embeddings_folder, tmp_path):
    """The same embeddings, cut to some columns, with other names of classes."""

    def make(columns: int, names: str = ""):
        folder = tmp_path / f"data_{columns}{names}"
        folder.mkdir()
        for path in embeddings_folder.glob("*.npz"):
            held = np.load(path)
            if "labels" not in held:
                continue  # text features
            features, labels = held["features"][:, :columns], held["labels"]
            np.savez(folder / path.name, features=features, labels=labels)
        if names:
            (folder / "class_names.txt").write_text("\n".join(names))
        return folder

    return make


def test_too_few_clients_end_the_joining(fleet):
    one = fleet()
    server = one.server("ggeur.deadline.join", 3)
    clients = [one.client(1), one.client(3)]
    assert statuses(server, *clients) == [1, 1, 1]
    for worker in (server, *clients):
        assert "joining: 2 of 4 clients have joined within 3 s" in worker.output
        assert "Start the missing clients [2, 4]" in worker.output


def test_enough_clients_begin_and_the_others_come_too_late(fleet):
    one = fleet("ggeur.quorum", 2)
    server = one.server("ggeur.deadline.join", 3)
    clients = [one.client(1), one.client(2, actions={"train 1": "hold"})]
    server.wait_for("clients [3, 4] did not join within 3 s")
    late = one.client(3)
    assert late.wait() == 1
    assert (
        "client 3 refused: field 'client': the run began without this client"
        in late.output
    )
    clients[1].open_gate()
    assert statuses(server, *clients) == [0, 0, 0]
    assert trained(server) == [[1, 2]] * 3


def test_clients_that_do_not_fit_are_refused_and_harm_nobody(
    fleet, embedded, other_data
):
    one = fleet()
    named = ("data.root", other_data(16, "abcdefghijkl"))
    server = one.server()
    # What a refused one says about the data counts for nobody.
    first = one.client(4, *named, "seed", 7, name="first")
    assert first.wait() == 1
    clients = [one.client(number) for number in GOOD]
    server.wait_for("has joined", times=3)
    misfits = [
        (first, "seed is '7' there and '0' here (at the server)"),
        (one.client(2, name="double"), "client 2 has joined already"),
        (
            one.client(5, "federate.client_num", 5, name="beyond"),
            "field 'client': 5, but federate.client_num is 4",
        ),
        (one.client(4, *named, name="named"), "class 0 is 'a' there and '0' here"),
        (
            one.client(4, "data.root", other_data(8), name="narrow"),
            "dim is 8 there and 16 here",
        ),
    ]
    for worker, reason in misfits:
        assert worker.wait() == 1
        assert reason in worker.output
        assert reason in server.output
    clients.append(one.client(4))
    check_same_head(server, clients, embedded())


def test_a_restored_run_takes_no_client_that_it_did_not_know(fleet, tmp_path):
    one = fleet("federate.client_num", 3, "federate.save_to", tmp_path / "checkpoint")
    server = one.server(actions={"checkpoint 1": "die"})
    clients = [one.client(number) for number in GOOD]
    assert server.wait() == -9
    clients.pop(2).kill()
    restore = ("federate.restore_from", tmp_path / "checkpoint")
    server = one.server(*restore, name="server_again")
    own = ("distribute.data_idx", -1, "ggeur.client_number", 3)
    moved = one.client(3, *own, "ggeur.domain", "moon", name="moved")
    assert moved.wait() == 1
    new = one.client(4, "federate.client_num", 4)
    assert new.wait() == 1
    clients.append(one.client(3, name="client_3_again"))
    assert statuses(server, *clients) == [0] * 4
    assert "'moon', but the client joined with 'sketch' before" in moved.output
    assert "the run began without this client" in new.output


# Members.


def test_answers_that_cannot_be_used_end_their_clients_alone(fleet):
    # By the answer's name in faults.py.
    reasons = {
        "nan_weights": "field 'params': contains NaN or infinity",
        "too_few_weights": "field 'params': expected shape",
        "of_client_1": "field 'client': expected the sender's own number, got 1",
        "of_round_7": "field 'round': an update of round 7",
        "garbage": "field 'header': not a message of this program",
        "twice": "field 'parts': expected one part, got 2",
    }
    one = fleet("federate.client_num", 7, "ggeur.quorum", 1)
    server, good = one.server(), one.client(1)
    rogues = {
        number: one.client(number, actions={"train 1": action})
        for number, action in enumerate(reasons, 2)
    }
    assert statuses(server, good) == [0, 0]
    assert trained(server) == [[1]] * 3
    for (number, rogue), reason in zip(rogues.items(), reasons.values()):
        assert rogue.wait() == 1
        for worker in (rogue, server):
            assert f"message from client {number} refused: {reason}" in worker.output


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


class Rogue:
    """A member that joins as it should; what it says then is up to the test."""

    def __init__(self, port: int, number: int, handshake: Handshake):
        self.number = number
        self.join = Join(number, "art", handshake)
        envelope = Envelope("join_in", 0, (self.join.to_bytes(),))
        settings = TransportSettings(2**24, join_deadline=PATIENCE)
        self.link = Link(f"127.0.0.1:{port}", number, envelope, settings)

    def is_asked(self) -> None:
        assert self.link.receive(PATIENCE).kind == "statistics_request"

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


def upload_of(number: int) -> bytes:
    empty = ClassStatistics.from_embeddings(
        torch.zeros(0, 16), torch.zeros(0, dtype=torch.int64), 12
    )
    return StatisticsUpload(number, "art", empty).to_bytes()


def test_members_that_break_the_rules_are_put_out(fleet, words, quickstart, tmp_path):
    file = tmp_path / "executed"
    bomb = pickle.dumps(Bomb(file))
    says = [
        (Envelope("model_params", 0, (b"x",)), "unknown message type 'model_params'"),
        (Envelope("statistics", 0, (bomb,)), "field 'header'"),
        (Envelope("statistics", 0, (bomb, bomb)), "field 'parts'"),
        (Envelope("statistics", 0, ()), "field 'parts'"),
        (Envelope("statistics", 0, (upload_of(1),)), "the sender's own number, got 1"),
        (Envelope("statistics", 0, (bytes(70_000),)), "more than the limit of 65536"),
        (Envelope("join_in", 0, (bomb,)), "a second message to join on one connection"),
        (Envelope("failed", 0, (b"my disk\nis full",)), ""),
        (Envelope("metrics", 2, (bomb,)), ""),
    ]
    numbers = range(4, 4 + len(says))
    names = tuple(str(label) for label in range(12))
    settings = agreed_settings(load_config(quickstart, words))
    one = fleet("federate.client_num", numbers[-1], "ggeur.quorum", 3)
    server = one.server("distribute.grpc_max_receive_message_length", 2**16)
    clients = [one.client(number) for number in GOOD]
    server.wait_for("has joined", times=3)
    encoder = "unknown (precomputed embeddings)"
    handshake = Handshake(names, 16, encoder, settings)
    rogues = [Rogue(one.port, number, handshake) for number in numbers]
    for rogue, (envelope, reason) in zip(rogues, says):
        rogue.is_asked()
        # For what is odd and harmless a member is barred after three messages.
        for _ in range(3 if envelope.kind == "join_in" else 1):
            rogue.link.send(envelope)
        if not reason:
            rogue.link.close()
    for rogue, (_, reason) in zip(rogues, says):
        if reason:
            assert reason in rogue.end()
            assert reason in server.output
    assert statuses(server, *clients) == [0] * 4
    assert trained(server) == [list(GOOD)] * 3
    assert f"client {numbers[-2]} is gone: my disk is full" in server.output
    ignored = (
        f"client {numbers[-1]}: an answer (evaluate, round 2) that nobody waits for"
    )
    assert ignored in server.output
    assert not file.exists()


def test_strangers_are_turned_away(fleet, embedded, tmp_path):
    file = tmp_path / "executed"
    bomb = pickle.dumps(Bomb(file))
    one = fleet()
    server = one.server()
    clients = [one.client(number) for number in GOOD]
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
    clients.append(one.client(4))
    check_same_head(server, clients, embedded())
    assert not file.exists()
