"""The server and client workers in FederatedScope (FS): its handlers and its queue."""

from __future__ import annotations

import atexit
import logging

import pytest
from standalone import outcome

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN

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


SETTINGS = [
    "ggeur.round0_window", 2,
    "ggeur.mlp_hidden_dim", 4,
    "ggeur.space", "standard",
    "ggeur.calibrate", "ccvr",
]  # fmt: skip


@pytest.fixture
def half_way(fs):
    """A run whose server has asked for the statistics of the first window."""
    there = fs.set_up(*SETTINGS)
    for client in there.runner.client.values():
        client.join_in()
    queue = there.runner.shared_comm_queue
    while queue and queue[0].receiver == [0]:
        there.server.msg_handlers[JOIN](queue.popleft())
    return there


def message(kind, sender, state=0, content=()):
    from federatedscope.core.message import Message

    return Message(
        msg_type=kind, sender=sender, receiver=[0], state=state, content=content
    )


def deliver(there, received) -> None:
    there.server.msg_handlers[received.msg_type](received)


def ignored(there) -> int:
    return there.log.count("that nobody waits for is ignored")


def go_on(there):
    """From where the queue stands to the end."""
    there.runner._run_simulation()
    there.server._monitor.finish_fed_runner(fl_mode="standalone")
    return there


@pytest.mark.slow
def test_early_answers_and_a_second_join_change_nothing(half_way, fs):
    there = half_way
    coordinator = there.server.federation.coordinator
    waiting = len(there.runner.shared_comm_queue)
    there.runner.client[2].join_in()
    deliver(there, there.runner.shared_comm_queue.pop())
    assert there.server.federation.coordinator is coordinator
    assert len(there.runner.shared_comm_queue) == waiting
    early = [
        message(TRAIN.answer_message, 1, 1, (b"x",)),  # of a round that has not begun
        message(STATISTICS.answer_message, 3, 0, (b"x",)),  # of another window
        message(STATISTICS.answer_message, 99, 0, (b"x",)),  # of nobody
        message(PREPARE.answer_message, 2, 0, ()),
    ]
    for received in early:
        deliver(there, received)
    assert ignored(there) == len(early)
    go_on(there)
    assert outcome(there.results) == outcome(fs.run(*SETTINGS).results)


@pytest.mark.slow
def test_late_and_doubled_answers_cannot_start_anything_again(half_way):
    there = half_way
    server, kept = there.server, []
    for kind, handler in list(server.msg_handlers.items()):
        server.msg_handlers[kind] = lambda m, handler=handler: (
            kept.append(m),
            handler(m),
        )
    go_on(there)
    results, model, lines = there.results, there.model, len(there.lines())
    assert len({m.msg_type for m in kept}) > 5
    count = len(kept)
    for received in kept[:count]:
        deliver(there, received)
    assert ignored(there) == count
    assert not there.runner.shared_comm_queue
    assert server.state == results.rounds[-1].round + 1  # FS's own mark of the end
    assert there.results == results
    assert len(there.lines()) == lines
    assert all(there.model[name].equal(model[name]) for name in model)


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
