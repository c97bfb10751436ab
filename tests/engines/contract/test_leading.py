"""The server of a run over connections: who joins, who is put out, who is late.

`engines/leading.py` leads FederatedScope's distributed mode and Flower's runs alike.
Here real clients answer it in this process, and no time passes: where nobody has
anything left to say, the deadline is over.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from dataclasses import replace
from functools import partial

import pytest
from kept_rounds import checkpoint_rounds
from private_words import LDA, SUMS

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.engines.sites import leading
from federatedscope_ggeur.engines.sites.federation import DistributedRun
from federatedscope_ggeur.engines.sites.transport import BROKEN, Envelope, Event
from federatedscope_ggeur.engines.workers import handshake_of, join_of
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.exchanges.base import all_kinds

SERVER = ["federate.mode", "distributed", "distribute.role", "server"]
ALL = [1, 2, 3]


class Wire:
    """Connections, with real clients behind them.

    `instead` holds what happens in place of an answer, by (kind, round, client), and
    `silence` what happens one after the other whenever nobody has anything to say.
    Where this is nothing, or adds no event, the deadline is over.
    """

    def __init__(self, run: Run):
        self.events, self.silence, self.instead = deque(), deque(), {}
        self.dismissed, self.finished, self.most, self.closed = {}, [], {}, None
        self.connections = dict.fromkeys(ALL, 0)
        self.handlers = run.engine._handlers
        settings = run.settings
        handshake = handshake_of(run.data, settings.agreed, None)
        self.joins = {
            held.number: join_of(held, handshake, settings.demands)
            for held in run.data.clients
        }

    def say(self, number: int, kind: str, state: int = 0, *parts: bytes) -> None:
        envelope = Envelope(kind, state, parts)
        connection = self.connections[number]
        self.events.append(Event(number, envelope, connection=connection))

    def join(self, number: int, **changes) -> None:
        """Join on a new connection."""
        self.connections[number] = max(self.connections.values()) + 1
        self.say(
            number, leading.JOIN, 0, replace(self.joins[number], **changes).to_bytes()
        )

    def vanish(self, number: int, reason: str = "cut", refused: bool = False) -> None:
        connection = self.connections[number]
        gone = Event(number, None, reason, refused=refused, connection=connection)
        self.events.append(gone)

    def send(self, number: int, envelope: Envelope) -> None:
        state, parts = envelope.state, envelope.parts
        if envelope.kind == leading.FINISH:
            self.finished.append(number)
            return
        kind = next(k for k in all_kinds() if k.message == envelope.kind)
        act = self.instead.pop((kind.name, state, number), None)
        if act is None:
            self.answer(number, kind, state, parts)
        else:
            act(partial(self.answer, number, kind, state, parts))

    def answer(self, number: int, kind, state: int, parts) -> None:
        said = self.handlers[number].answer(kind, parts)
        if said:
            self.say(number, kind.answer_message, state, *said)

    # as `Leader` has its connections

    def receive(self, timeout: float | None) -> Event | None:
        if not self.events and self.silence:
            self.silence.popleft()()
        if self.events:
            return self.events.popleft()
        assert timeout is not None, "the server waits for ever"
        return None

    def expect(self, number: int, most: int | None) -> None:
        self.most.setdefault(number, []).append(most)

    def dismiss(self, number: int, reason: str, connection: int | None) -> None:
        self.dismissed.setdefault(number, []).append(reason)
        # What it said before is in the queue already; nobody hears it from now on.
        self.events.append(Event(number, None, "dismissed", connection=connection))

    def close(self, reason: str = "") -> None:
        self.closed = reason


@pytest.fixture
def settings() -> list:
    """Of the run, on both sides."""
    return ["ggeur.steps", "[]"]


@pytest.fixture
def wire(config, settings):
    return Wire(Run(config(*settings)))


@pytest.fixture
def lead(config, settings, wire, tmp_path):
    """Lead a run to its end; its federation."""

    def go(*more, proven=False) -> DistributedRun:
        cfg = load_config(config(*settings, *more), SERVER, on_fs=True)
        about = "a test", tmp_path, proven, lambda path: f"a test, {path}"
        federation = DistributedRun(cfg, None, *about)
        leading.Leader(cfg, federation, wire).lead()
        return federation

    return go


@pytest.fixture
def joined(wire):
    for number in ALL:
        wire.join(number)


def trained(federation: DistributedRun) -> list[list[int]]:
    return [record.clients for record in federation.history.rounds]


SOME = ("ggeur.quorum", 2)


@pytest.mark.usefixtures("joined")
def test_a_run_in_which_nothing_goes_wrong(lead, wire):
    assert trained(lead()) == [ALL] * 3
    assert (wire.finished, wire.closed, wire.dismissed) == (ALL, "", {})
    # No client may send more than an answer takes, whatever it has been asked.
    assert all(0 < most < 2**20 for asked in wire.most.values() for most in asked)


# Joining


def test_too_few_are_named_at_the_deadline(lead, wire):
    wire.join(1)
    with pytest.raises(GGEURError, match=r"1 of 3 clients .*missing clients \[2, 3\]"):
        lead()
    assert wire.closed.startswith("the server ended the run: joining: 1 of 3 clients")


@pytest.mark.parametrize("proven", [False, True])
def test_enough_begin_and_who_comes_later_is_refused(lead, wire, proven):
    wire.join(1)
    wire.join(2)
    wire.instead["train", 1, 1] = lambda answer: (wire.join(3), answer())
    federation = lead(*SOME, proven=proven)
    assert trained(federation) == [[1, 2]] * 3
    (reason,) = wire.dismissed[3]
    assert "the run began without this client" in reason


def test_where_nobody_could_stay_nobody_is_waited_for(lead, wire):
    for number, join in wire.joins.items():
        settings = {**join.handshake.settings, "seed": "77"}
        wire.join(number, handshake=replace(join.handshake, settings=settings))
    wire.silence.append(lambda: pytest.fail("it waits"))
    with pytest.raises(GGEURError, match="all clients have left with an error") as said:
        lead()
    for number in ALL:
        assert f"client {number}" in str(said.value)
        assert "seed is '77' there" in wire.dismissed[number][0]


@pytest.mark.parametrize("parts", [(), (b"",), (b"x", b"x"), (b"\x80\x04garbage",)])
def test_a_message_to_join_that_cannot_be_read(lead, wire, parts):
    wire.connections[3] = 9
    wire.say(3, leading.JOIN, 0, *parts)
    wire.join(1)
    wire.join(2)
    assert trained(lead(*SOME)) == [[1, 2]] * 3
    assert "client 3 refused: field" in wire.dismissed[3][0]


# Who is late, and who is lost


@pytest.mark.usefixtures("joined")
def test_who_is_late_is_asked_again_once_it_has_answered(lead, wire, caplog):
    caplog.set_level("INFO", logger="federatedscope_ggeur")
    late = []
    wire.instead["train", 1, 3] = late.append
    wire.instead["train", 2, 1] = lambda answer: (late.pop()(), answer())
    federation = lead(*SOME)
    assert trained(federation) == [[1, 2], [1, 2], ALL]
    assert caplog.text.count("client 3: no answer (train) within ") == 1
    assert "client 3: an answer (train, round 1) that nobody waits for" in caplog.text
    assert wire.dismissed == {}


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("reason", ["cut", BROKEN])
def test_who_is_lost_and_comes_back_in_time_misses_nothing(lead, wire, caplog, reason):
    """At the default quorum. A connection that broke has time to come back."""
    caplog.set_level("INFO", logger="federatedscope_ggeur")

    slow = []
    wire.instead["evaluate", 1, 1] = slow.append
    wire.instead["evaluate", 1, 3] = lambda answer: (
        wire.vanish(3, reason), wire.join(3), slow.pop()()
    )  # fmt: skip
    assert trained(lead()) == [ALL] * 3
    assert f"client 3 is gone: {reason}" in caplog.text
    assert ("waiting 60 s for client 3" in caplog.text) == (reason == BROKEN)
    assert "client 3 has come back" in caplog.text


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("settings", [[*LDA, *SUMS]])
def test_a_sum_waits_for_who_is_lost_and_asks_it_again(lead, wire, caplog):
    """Though all others have answered; every other question goes on without it."""
    asked = []

    def lost(answer) -> None:
        asked.append(answer.args)
        wire.vanish(3)
        wire.silence.append(lambda: wire.join(3))
        wire.instead["sum_means", 0, 3] = lambda again: (
            asked.append(again.args), again()
        )  # fmt: skip

    wire.instead["sum_means", 0, 3] = lost
    federation = lead()
    assert "waiting for client 3 to come back: cut" in caplog.text
    assert asked[0] == asked[1]
    assert federation.history.round0.sums.roster == ALL
    assert wire.finished == ALL


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("quorum", [2, 3])
def test_who_stays_away_ends_the_run_below_the_quorum(lead, wire, quorum, tmp_path):
    wire.instead["train", 2, 3] = lambda answer: wire.vanish(3, f"lost {tmp_path}/x")
    if quorum == 2:
        assert trained(lead("ggeur.quorum", 2)) == [ALL, [1, 2], [1, 2]]
        assert wire.finished == [1, 2]
        return
    with pytest.raises(GGEURError, match="2 of 3 clients are left, but") as said:
        lead("ggeur.quorum", 3)
    assert "client 3: lost" in str(said.value)
    assert wire.closed.startswith("the server ended the run: ")
    assert str(tmp_path) not in wire.closed
    assert (tmp_path / "results.json").exists()


def test_sites_learn_that_a_person_stopped_the_server(lead, wire):
    """Even before the run has begun."""

    def stop() -> None:
        raise KeyboardInterrupt

    wire.silence.append(stop)
    with pytest.raises(KeyboardInterrupt):
        lead()
    assert wire.closed == leading.STOPPED


@pytest.mark.usefixtures("joined")
def test_who_says_that_it_stops_is_let_go(lead, wire, caplog):
    reason = b"client 3: my disk\nis full" + b"!" * 2000
    wire.instead["train", 2, 3] = lambda answer: wire.say(3, leading.FAILED, 2, reason)
    assert trained(lead(*SOME)) == [ALL, [1, 2], [1, 2]]
    assert "client 3 is gone: my disk is full!!!" in caplog.text
    assert "!" * 1000 not in caplog.text
    assert wire.dismissed[3] == ["this client has said that it stops"]


@pytest.mark.usefixtures("joined")
def test_a_full_disk_at_the_server_ends_the_run_in_order(
    lead, wire, tmp_path, monkeypatch, caplog
):
    """By one error. Sites are told, and what was complete can be read."""

    def full(file) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill(answer) -> None:
        monkeypatch.setattr(os, "fsync", full)
        answer()

    wire.instead["train", 3, 2] = fill
    kept = tmp_path / "kept"
    problem = r"federate\.save_to: .*No space left"
    with pytest.raises(ConfigError, match=problem) as said:
        lead("federate.save_to", kept)
    assert f"the disk of '{tmp_path}' is full" in str(said.value)
    assert "the server ended the run: federate.save_to: cannot write " in wire.closed
    assert str(tmp_path) not in wire.closed
    assert checkpoint_rounds(kept) == 2
    assert f"to go on once the cause is mended: a test, {kept}" in caplog.text
    assert caplog.text.count("not all files could be written") == 1
    assert not any(record.exc_info for record in caplog.records)
    assert not list(tmp_path.glob("**/.*.tmp"))


# Who does not keep to the rules

JUNK = {
    "answers": (lambda wire: wire.say(3, "metrics", 7, b"x"), "an answer (evaluate, "),
    "joins": (
        lambda wire: wire.say(3, leading.JOIN, 0, b""),
        "a second message to join on one connection",
    ),
}


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("junk", JUNK)
def test_junk_is_cut_off_and_costs_no_second_deadline(lead, wire, caplog, junk):
    send, said = JUNK[junk]

    def late(answer) -> None:
        """Say nothing until the deadline is over, and then what nobody asked for."""
        wire.instead["train", 2, 1] = lambda right: (
            [send(wire) for _ in range(100)], right()
        )  # fmt: skip

    wire.instead["train", 1, 3] = late
    assert trained(lead(*SOME)) == [[1, 2]] * 3
    assert caplog.text.count("no answer (") == 1
    assert "barred after 3 invalid messages, the last one: " in wire.dismissed[3][0]
    assert said in wire.dismissed[3][0]
    assert len(wire.dismissed[3]) == 1  # what it had sent before it was barred is junk


@pytest.mark.usefixtures("joined")
def test_an_unknown_type_of_message_ends_the_connection(lead, wire):
    wire.instead["train", 1, 3] = lambda answer: wire.say(3, "os.system", 1, b"x")
    assert trained(lead(*SOME)) == [[1, 2]] * 3
    assert wire.dismissed[3] == ["unknown message type 'os.system'"]


@pytest.mark.parametrize("proven", [False, True])
def test_whether_the_next_of_a_barred_number_may_join(lead, wire, proven):
    """Only where nobody could have its token, it is another one."""
    wire.join(3)
    for _ in range(3):
        wire.say(3, "metrics", 7, b"x")
    wire.silence.append(lambda: (wire.join(1), wire.join(2)))
    wire.silence.append(lambda: wire.join(3))
    federation = lead(*SOME, proven=proven)
    assert "barred after 3 invalid messages" in wire.dismissed[3][0]
    if proven:
        assert trained(federation) == [[1, 2]] * 3
        assert "the server has barred this client" in wire.dismissed[3][1]
    else:
        assert trained(federation) == [ALL] * 3


@pytest.mark.usefixtures("joined")
def test_streams_that_the_server_refuses_count_as_junk(lead, wire):
    def refused(answer) -> None:
        for _ in range(3):
            wire.vanish(3, "a frame too long", refused=True)
            wire.join(3)

    wire.instead["train", 1, 3] = refused
    federation = lead(*SOME, proven=True)
    assert trained(federation) == [[1, 2]] * 3
    assert "3 invalid messages" in federation.membership.conduct.barred[3]


@pytest.mark.usefixtures("joined")
def test_where_the_run_would_end_the_true_owner_of_a_number_may_still_come(lead, wire):
    """Whoever was put out may not have been it."""

    def junk(answer) -> None:
        for _ in range(3):
            wire.say(3, "metrics", 7, b"x")
        wire.silence.append(lambda: wire.join(3))

    wire.instead["train", 1, 3] = junk
    assert trained(lead()) == [ALL] * 3
