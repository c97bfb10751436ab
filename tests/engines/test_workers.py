"""Several processes answer for the clients of an embedded run: `ggeur.workers`.

That they give the same bits as one is said by test_same_bits.py.
"""

import logging
import os
import signal
import sys

import pytest
from every_method import words
from own_process import PATIENCE, children_of, forked, is_there, stat_of, until

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")

FIVE = ["federate.client_num", 5, "federate.sample_client_num", 3]


@pytest.fixture
def started():
    """The processes that the test has started; other tests may have left a server."""
    own = os.getpid()
    before = children_of(own)
    return lambda: [pid for pid in children_of(own) if pid not in before]


def shared(cfg, workers=2) -> Run:
    """A run whose clients are in several processes, which has not begun."""
    started = Run(cfg)
    started.engine.workers = workers
    return started


@pytest.mark.slow
def test_what_is_logged_in_one_is_heard(config, caplog):
    started = shared(config("dataloader.batch_size", 220, "dataloader.drop_last", True))
    with caplog.at_level(logging.WARNING):
        started.follow(lambda record: None)
    never = [r for r in caplog.records if "never trains" in r.getMessage()]
    assert [r.getMessage()[:8] for r in never] == ["client 3"]


@pytest.mark.slow
def test_an_error_in_one_is_that_of_the_run(config, started):
    cfg = config(*words("fedproto"), "train.optimizer.lr", 3)
    said = []
    for workers in (1, 2):
        message = r"client \d, round \d: training diverged"
        with pytest.raises(GGEURError, match=message) as caught:
            shared(cfg, workers).follow(lambda record: None)
        said.append((type(caught.value), str(caught.value)))
        assert started() == []
    assert said[0] == said[1]


@pytest.mark.slow
def test_a_bug_in_one_shows_where_it_is(config, monkeypatch):
    def broken(self, broadcast):
        raise ZeroDivisionError("of a test")

    monkeypatch.setattr(TrainingClient, "train", broken)
    with pytest.raises(ZeroDivisionError, match="of a test") as caught:
        shared(config()).follow(lambda record: None)
    assert "in broken" in str(caught.value.__cause__)


@pytest.mark.slow
def test_a_killed_one_is_named_and_none_is_left(config, started):
    def kill(record):
        os.kill(started()[0], signal.SIGKILL)

    with pytest.raises(GGEURError, match=r"worker \d \(process \d+\).*SIGKILL"):
        shared(config()).follow(kill)
    assert started() == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_a_stopped_run_leaves_none_behind(tmp_path, quickstart, stop):
    settings = ["federate.total_round_num", "100000", "ggeur.workers", "2"]
    settings += ["outdir", str(tmp_path), "verbose", "0"]
    words = ["--cfg", str(quickstart), *settings]
    process = forked(words, tmp_path / "said")

    workers: list[int] = []

    def at_work() -> bool:
        workers[:] = children_of(process.pid)
        return len(workers) == 2 and all(map(has_run, workers))

    try:
        until(at_work, process)
        (os.killpg if stop == signal.SIGINT else os.kill)(process.pid, stop)
        process.join(PATIENCE)
        assert process.exitcode == (130 if stop == signal.SIGINT else -stop)
    finally:
        process.kill()
    until(lambda: not any(map(is_there, workers)))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 7])
def test_a_run_goes_on_with_another_number(config, tmp_path, workers):
    """With more than there are clients, too."""
    scaffold = [*words("scaffold"), *FIVE, "federate.total_round_num"]
    place = str(tmp_path / "half")
    half = ["federate.save_to", place, "ggeur.workers", 2]
    run(config(*scaffold, 2), overrides=half)
    rest = ["federate.restore_from", place, "ggeur.workers", workers]
    again = run(config(*scaffold, 4), overrides=rest)
    assert again.final.head_sha256 == run(config(*scaffold, 4)).final.head_sha256


def test_what_it_cannot_be_with_is_named(config):
    with pytest.raises(ConfigError, match=r"ggeur.workers 2: .*ggeur.num_threads 1"):
        Run(config("ggeur.workers", 2, "ggeur.num_threads", 2))
    for workers, threads in ((1, 2), (2, 1)):
        assert Run(config("ggeur.workers", workers, "ggeur.num_threads", threads))


@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        ([], 1),
        (["federate.total_round_num", 10_000], None),
        (["federate.total_round_num", 10_000, "ggeur.workers", 3], 3),
    ],
)
def test_commands_take_the_cores_where_that_pays(config, settings, workers):
    going = Run(config(*settings))
    going.use_cores()
    assert going.engine.workers == (workers or len(os.sched_getaffinity(0)))


def has_run(pid: int) -> bool:
    """Whether a process has taken more time than it takes to begin."""
    return sum(map(int, stat_of(pid)[11:13])) > 20  # hundredths of a second
