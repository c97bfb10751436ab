"""The server and client workers in FederatedScope (FS): its handlers and its queue."""

from __future__ import annotations

import atexit
import logging

import pytest

from federatedscope_ggeur.errors import GGEURError, MessageError

#: FederatedScope's own type of a message.
JOIN = "join_in"


def workers() -> tuple[type, type]:
    # Imported late: the protobuf module must be mended first.
    from federatedscope_ggeur.engines.fs import register

    register()
    from federatedscope_ggeur.engines.fs.client import GGEURClient
    from federatedscope_ggeur.engines.fs.server import GGEURServer

    return GGEURClient, GGEURServer


def test_every_message_that_is_sent_is_handled_and_none_of_fs_s_own(federatedscope):
    client, server = (worker.get_msg_handler_dict() for worker in workers())
    for here, there in ((client, server), (server, client)):
        sent = {m for _, out in here.values() for m in out if m is not None}
        assert sent <= there.keys()
        # Without a config, as FS makes them to look at them.
        for kind in ("assign_client_id", "address", "ss_model_para"):
            assert kind not in here


@pytest.mark.slow
def test_fs_s_own_check_of_completeness(fs):
    """A path of messages leads from joining to the end."""
    pytest.importorskip("networkx", reason="FS draws the graph with networkx")
    there = fs.set_up(also=["check_completeness", True])
    assert "Completeness check passes" in there.log
    assert (there.folder / "msg_handler.png").exists()


def message(kind, sender, state=0, content=()):
    from federatedscope.core.message import Message

    return Message(
        msg_type=kind, sender=sender, receiver=[0], state=state, content=content
    )


def deliver(there, received) -> None:
    there.server.msg_handlers[received.msg_type](received)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "problem"), [((b"nonsense",), "client 1"), ((), "one part")]
)
def test_a_join_that_cannot_be_read_ends_a_standalone_run(fs, content, problem):
    there = fs.set_up()
    with pytest.raises(MessageError, match=problem):
        deliver(there, message(JOIN, 1, content=content))
    assert there.server.federation.membership.joined == {}


@pytest.fixture
def at_exit(monkeypatch):
    """What is to be called at the end of the process."""
    functions = []

    def unregister(function):
        functions[:] = [one for one in functions if one != function]

    monkeypatch.setattr(atexit, "register", functions.append)
    monkeypatch.setattr(atexit, "unregister", unregister)
    return functions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "last"),
    [
        (["train.optimizer.lr", 3e6], 1),
        (["train.optimizer.lr", 1e9, "train.local_update_steps", 20], 0),
    ],
    ids=["after a round", "at once"],
)
def test_what_was_over_is_written_when_the_process_ends(fs, at_exit, settings, last):
    """FS has no place where a run that fails could be ended."""
    fs.run()
    assert not at_exit  # a run that ended well leaves nothing to do
    there = fs.set_up(*settings)
    with pytest.raises(GGEURError) as error:
        there.go()
    for part in (f"client 1, round {last + 1}", "lower train.optimizer.lr"):
        assert part in str(error.value)
    assert not (there.folder / "results.json").exists()
    (function,) = at_exit
    function()
    assert (there.folder / "results.json").exists() == (last > 0)
    if last:
        assert there.results.status == "failed"
        assert [record.round for record in there.results.rounds] == [1]
        assert all(tensor.isfinite().all() for tensor in there.model.values())


HOOKS = "Hook-like plug-in functions cannot be enabled when using <x.{}>"
AGGREGATOR = "Aggregator for method {} is not implemented. Will use default one"
PROCESSES = "We found the number of gpu is insufficient, thus cfg.federate.{}"


@pytest.mark.parametrize(
    ("module", "said", "false", "true"),
    [
        ("core.auxiliaries.trainer_builder", HOOKS, "GGEURTrainer", "Mine"),
        ("core.auxiliaries.aggregator_builder", AGGREGATOR, "ggeur", "mine"),
        ("core.configs.cfg_fl_setting", PROCESSES, "process_num=0", "process_num=2"),
    ],
)
def test_fs_warns_of_what_is_not_ours_as_ever(
    federatedscope, module, said, false, true
):
    workers()
    logger = logging.getLogger(f"federatedscope.{module}")
    for what, heard in ((false, False), (true, True)):
        text = said.format(what)
        record = logger.makeRecord(logger.name, 30, "", 0, text, (), None)
        assert bool(logger.filter(record)) == heard
