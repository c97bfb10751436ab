"""The server's connections, over a Grid of this process with residents behind it."""

from __future__ import annotations

from itertools import count

import pytest
from hostile_server import LIMITS, OURS, SITE

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.leading import JOIN
from federatedscope_ggeur.federation.wire import packing
from federatedscope_ggeur.transport import Envelope, Event, make_token

pytestmark = pytest.mark.usefixtures("flower")
SECRET = b"0123456789abcdef"


class Nodes:
    """Flower's Grid. Behind each SuperNode is a callable that answers bytes."""

    def __init__(self):
        self.behind, self._replies, self._ids = {}, {}, count(1)

    def get_node_ids(self):
        return list(self.behind)

    def push_messages(self, messages):
        from flwr.app import Message

        from federatedscope_ggeur.engines.flower.records import (
            content_of,
            problem_of,
            read_content,
        )

        (message,) = messages
        message.metadata.__dict__["_message_id"] = name = str(next(self._ids))
        answer = self.behind[message.metadata.dst_node_id]
        try:
            content = content_of(answer(read_content(message.content)))
        except OSError as error:
            content = problem_of(str(error))
        self._replies[name] = Message(content, reply_to=message)
        return [name]

    def pull_messages(self, names):
        return [self._replies.pop(name) for name in names if name in self._replies]


@pytest.fixture
def nodes():
    return Nodes()


@pytest.fixture
def hub(nodes, monkeypatch):
    """Connections that wait for nothing."""
    from flwr.supercore.task_identity import TaskIdentity

    from federatedscope_ggeur.engines.flower import hub

    for name in ("_run_id", "_node_id", "_task_id"):  # as in a ServerApp's process
        monkeypatch.setattr(TaskIdentity, name, 1)

    for pause in ("_PULL", "_LOOK", "_AGAIN", "_MUCH_LATER"):
        monkeypatch.setattr(hub, pause, 0.0)
    return hub.GridHub(nodes, LIMITS, (OURS, bytes(16)), SECRET)


@pytest.fixture
def resident(config, tmp_path):
    """Start client 2's resident, with a token."""
    from federatedscope_ggeur.engines.flower.resident import Resident

    def start(number: int = 2):
        token = tmp_path / "token"
        token.write_text(make_token(SECRET, number))
        more = [*SITE, "ggeur.join_token", str(token)]
        return Resident(load_config(config(), more, on_fs=True), tmp_path)

    return start


def joined(hub) -> Event:
    event = hub.receive(5.0)
    assert (event.number, event.envelope.kind) == (2, JOIN)
    return event


@pytest.mark.slow
def test_what_goes_out_is_answered_on_the_connection(hub, nodes, resident):
    nodes.behind[7] = resident().answer
    event = joined(hub)
    hub.send(2, Envelope("statistics_request"))
    hub.expect(2, None)
    answer = hub.receive(5.0)
    assert answer.envelope.kind == "statistics"
    assert answer.connection == event.connection


def test_a_resident_that_was_killed_and_started_again_joins_anew(hub, nodes, resident):
    nodes.behind[7] = resident().answer
    first = joined(hub)
    nodes.behind[7] = resident().answer
    hub.send(2, Envelope("statistics_request"))
    gone = hub.receive(5.0)
    assert (gone.envelope, gone.reason) == (None, "its resident was started anew")
    assert joined(hub).connection > first.connection


def test_a_supernode_that_is_gone_ends_the_connection(hub, nodes, resident):
    nodes.behind[7] = resident().answer
    joined(hub)
    del nodes.behind[7]
    gone = hub.receive(5.0)
    assert (gone.envelope, gone.reason) == (None, "its SuperNode is gone")
    assert hub.receive(0.1) is None


def test_a_resident_behind_another_supernode_keeps_its_place(hub, nodes, resident):
    nodes.behind[7] = nodes.behind[8] = resident().answer
    joined(hub)
    assert "another SuperNode" in hub.receive(5.0).reason
    joined(hub)


def test_of_two_residents_of_one_number_the_first_stays(hub, nodes, resident, caplog):
    nodes.behind[7] = resident().answer
    joined(hub)
    nodes.behind[8] = resident().answer
    assert hub.receive(0.1) is None
    assert "client 2 has joined already" in caplog.text


def test_who_is_dismissed_is_told_and_stays_away(hub, nodes, resident):
    one = resident()
    nodes.behind[7] = one.answer
    event = joined(hub)
    hub.dismiss(2, "no", event.connection + 1)  # of a connection to come
    hub.send(2, Envelope("statistics_request"))
    hub.expect(2, None)
    assert hub.receive(5.0).envelope.kind == "statistics"
    hub.dismiss(2, "no", None)
    assert hub.receive(0.1) is None
    assert one.doing == "waiting for a server that goes on with the run"
    nodes.behind[7] = resident().answer  # of another session
    joined(hub)


def test_a_resident_of_another_run_is_named(hub, nodes, resident, tmp_path, caplog):
    (tmp_path / "run").write_text("fedcba9876543210")
    nodes.behind[7] = resident().answer
    assert hub.receive(0.1) is None
    assert "SuperNode 7: its resident does not join: " in caplog.text
    assert "answers the run fedcba9876543210" in caplog.text


@pytest.mark.parametrize("spoil", ["token", "version"])
def test_who_may_not_join_is_told_why(hub, nodes, resident, caplog, monkeypatch, spoil):
    caplog.set_level("WARNING", logger="federatedscope_ggeur")
    with monkeypatch.context() as there:
        if spoil == "version":
            there.setattr(packing, "VERSION", 3)
        one = resident(number=1 if spoil == "token" else 2)
    nodes.behind[7] = one.answer
    assert hub.receive(0.2) is None
    told = [r.getMessage() for r in caplog.records]
    wrong = {"token": "the token of client 1", "version": "version 3 instead of 4"}
    assert any("the server says" in line and wrong[spoil] in line for line in told)
    assert len(told) == 2  # one at each side


def test_the_reason_of_a_failure_reaches_who_is_left(hub, nodes, resident, caplog):
    nodes.behind[7] = resident().answer
    joined(hub)
    hub.close("the disk is full")
    assert "the server says: the disk is full" in caplog.text
