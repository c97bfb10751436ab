"""Peers that break the rules lose their stream; nobody else notices."""

import logging
import pickle
import threading
import time
from types import SimpleNamespace

import pytest
from hostile_pickles import Runs
from own_process import until
from processes import free_port
from test_frames import header

from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Event,
    Refused,
    streams,
)
from federatedscope_ggeur.engines.sites.transport.probe import reach_problem
from federatedscope_ggeur.engines.sites.transport.streams import SparingLog, WaitingRoom

grpc = pytest.importorskip("grpc", reason="the transport needs grpcio")

pytestmark = pytest.mark.usefixtures("no_thread_dies")
PATIENCE = 300.0


def joining(number, token="", **changes) -> bytes:
    return header(**{"kind": "join_in", "number": number, "token": token, **changes})


@pytest.fixture
def still_serves(hub, joined):
    """After the test, a client that joined before it can talk as if nothing was."""
    link = joined(hub, 9)
    yield
    link.send(Envelope("still", 1, (b"here",)))
    assert hub.receive(PATIENCE) == Event(9, Envelope("still", 1, (b"here",)))
    hub.send(9, Envelope("finish"))
    assert link.receive(PATIENCE) == Envelope("finish")


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        # test_frames.py has all others.
        ([b"garbage"], "not a header of this program"),
        ([joining(0)], "is not a client's number"),
        ([joining(1, sizes=[2**16])], "65536 bytes are more than the limit of 57344"),
        ([joining(1, sizes=[4]), b"D12345"], "more than the 4 bytes"),
        ([joining(9)], "client 9 has joined already"),
    ],
)
def test_a_peer_that_cannot_join_hears_why(hub, peer, frames, problem, caplog):
    code, reason = peer(hub, *frames).end()
    assert code == "ABORTED"
    assert problem in reason
    assert hub.receive(0.0) is None
    assert "127.0.0.1" in caplog.text
    assert problem in caplog.text


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([b"garbage"], "'header'"),
        ([header(sizes=[2]), b"D123"], "more than the 2 bytes"),
        ([header(sizes=[2**24] * 2)], "limit of 16777216"),
        ([header(number=2)], "'header'"),  # it speaks for its own number only
    ],
)
def test_a_client_that_breaks_the_rules_is_gone(hub, peer, frames, problem):
    rogue = peer(hub, joining(1), *frames)
    assert hub.receive(PATIENCE) == Event(1, Envelope("join_in"))
    gone = hub.receive(PATIENCE)
    assert (gone.number, gone.envelope) == (1, None)
    assert problem in gone.reason
    assert "client 1" in gone.reason
    assert rogue.end() == ("ABORTED", gone.reason)


@pytest.mark.usefixtures("still_serves")
def test_pickled_code_is_never_run(hub, peer, tmp_path):
    path = tmp_path / "executed"
    bomb = pickle.dumps(Runs(path))
    before = [[bomb], [b"H" + bomb], [joining(1, sizes=[9]), bomb]]
    for frames in before:
        assert peer(hub, *frames).end()[0] == "ABORTED"
    for number, frame in enumerate([bomb, b"H" + bomb, b"Z" + bomb], 1):
        peer(hub, joining(number), header(sizes=[len(bomb)]), frame)
        assert hub.receive(PATIENCE).envelope.kind == "join_in"
        assert hub.receive(PATIENCE).envelope is None
    # As data it is what any bytes are.
    last = peer(hub, joining(4), header(sizes=[len(bomb)]), b"D" + bomb)
    assert hub.receive(PATIENCE).envelope.kind == "join_in"
    assert hub.receive(PATIENCE).envelope.parts == (bomb,)
    last.cancel()
    assert hub.receive(PATIENCE).envelope is None
    assert not path.exists()


def test_who_does_not_join_in_time_is_cut_off(make_hub, peer, caplog):
    hub = make_hub(join_deadline=0.2)
    silent, stuck = peer(hub), peer(hub, joining(1, sizes=[5]), b"D123")
    for one in (silent, stuck):
        assert one.end() == ("ABORTED", "no join message within 0.2 s")
    assert hub.receive(0.0) is None
    until(lambda: caplog.text.count("was not admitted: no join message") == 2)


def test_a_client_that_joined_may_be_silent():
    context = SimpleNamespace(peer=lambda: "a peer", cancel=lambda: None)
    stream = streams.Stream(context, 1000, 1000)
    stream.send(iter([b"welcome"]))
    outgoing = stream.outgoing(patience=0.05)
    assert next(outgoing) == b"welcome"
    threading.Timer(0.2, stream.send, [iter([b"at last"])]).start()
    assert next(outgoing) == b"at last"


def test_streams_that_do_not_join_leave_room_in_the_end(make_hub, peer, join):
    hub = make_hub(clients=1)
    idle = [peer(hub) for _ in range(40)]
    join(hub, 1)
    assert hub.receive(PATIENCE).number == 1
    hub.close()
    codes = {one.end()[0] for one in idle}
    assert {"RESOURCE_EXHAUSTED"} < codes <= {"ABORTED", "OK", "RESOURCE_EXHAUSTED"}


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize(
    ("frames", "said", "code"),
    [
        ([header(sizes=[5]), b"D123"], "ended inside a message", "ABORTED"),
        ([], "broke off", "OK"),
    ],
)
def test_a_stream_that_ends_without_leave_is_gone(hub, peer, frames, said, code):
    rogue = peer(hub, joining(1), *frames)
    rogue.outbox.put(None)
    assert hub.receive(PATIENCE).envelope.kind == "join_in"
    assert said in hub.receive(PATIENCE).reason
    assert rogue.end()[0] == code


@pytest.mark.usefixtures("still_serves")
def test_a_frame_longer_than_admitted_ends_the_stream(hub, peer):
    rogue = peer(hub, joining(1), bytes(2**21))
    assert hub.receive(PATIENCE).envelope.kind == "join_in"
    assert rogue.end()[0] == "RESOURCE_EXHAUSTED"
    assert "longer than this server allows" in hub.receive(PATIENCE).reason


@pytest.mark.usefixtures("still_serves")
def test_grpcs_own_compression_is_not_unpacked(hub, peer):
    rogue = peer(hub, joining(1), compression=grpc.Compression.Gzip)
    assert rogue.end()[0] == "UNIMPLEMENTED"
    assert hub.receive(0.0) is None


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize(
    "method", ["/gRPCComServeFunc/sendMessage", "/federatedscope_ggeur.Transport/Leave"]
)
def test_other_methods_do_not_exist(hub, peer, method):
    call = peer(hub).channel.unary_unary(method)
    with pytest.raises(grpc.RpcError) as caught:
        call(pickle.dumps("hello"), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert hub.receive(0.0) is None


@pytest.mark.usefixtures("still_serves")
def test_a_dismissed_client_that_never_reads_is_cut_off(hub, peer, monkeypatch):
    monkeypatch.setattr(streams, "_LAST_WORDS", 0.2)
    before = set(threading.enumerate())
    deaf = peer(hub, joining(1))
    assert hub.receive(PATIENCE).envelope.kind == "join_in"
    hub.send(1, Envelope("model_para", 0, (bytes(2**24),)))
    welcome_header_and_data = [next(deaf.call) for _ in range(3)]
    assert welcome_header_and_data[2][:2] == b"D\x00"
    time.sleep(0.2)  # until nothing more fits on the way
    hub.dismiss(1, "deaf")
    assert hub.receive(PATIENCE) == Event(1, None, "deaf")
    new = set(threading.enumerate()) - before
    serving = [thread for thread in new if thread.name.startswith("hub")]
    for thread in serving:
        thread.join(PATIENCE / 2)  # the deaf peer's call ends by itself after all
        assert not thread.is_alive()
    assert serving


# Streams that wait to join, and a log that nobody can flood.


class Caller:
    def __init__(self, machine: int, port: int):
        self.peer = f"ipv4:10.0.0.{machine}:{port}"


def test_the_oldest_makes_room():
    room = WaitingRoom(clients=2)
    calls = [Caller(n, n) for n in range(room.places + 3)]
    assert [room.enter(call) for call in calls[:-3]] == [None] * room.places
    assert room.enter(calls[-3]) is calls[0]
    room.leave(calls[1])
    room.leave(calls[1])
    assert room.enter(calls[-2]) is None
    assert room.enter(calls[-1]) is calls[2]


def test_a_machine_beyond_its_share_makes_room_itself():
    room = WaitingRoom(clients=2)
    other, calls = Caller(1, 0), [Caller(2, n) for n in range(2 * room.share)]
    assert room.enter(other) is None
    replaced = [room.enter(call) for call in calls]
    assert replaced == [*[None] * room.share, *calls[: room.share]]
    assert room.share < room.places, "others keep some places"


def test_a_number_that_nobody_has_is_refused(make_hub, join):
    hub = make_hub(clients=2)
    with pytest.raises(Refused, match="client 3 is none of the 2 clients of this serv"):
        join(hub, 3)
    join(hub, 2)
    assert hub.receive(PATIENCE).number == 2


def test_what_was_kept_back_is_counted(caplog, clock):
    log = SparingLog(logging.getLogger("sparing"))
    for number in range(1000):
        log.warning("stranger %d", number)
    assert len(caplog.records) == 20
    clock[0] += 11
    log.warning("the %s", "last")
    assert [record.getMessage() for record in caplog.records[20:]] == [
        "980 more warnings like those before",
        "the last",
    ]


def test_a_closed_port_and_an_unknown_host_are_told_apart():
    assert "nothing listens there" in reach_problem(f"127.0.0.1:{free_port()}")
    assert "no such host" in reach_problem("no-such-host.invalid:1")
