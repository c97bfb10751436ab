"""Several processes answer for the clients of an embedded run: `ggeur.workers`."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from every_method import ADDED, ON_HEADS, words

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting.json_values import as_json_value

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")

FIVE = ["federate.client_num", 5, "federate.sample_client_num", 3]
NO_STEPS = ["ggeur.steps", []]
SUMS = [
    "ggeur.privacy.secure_sums", "statistics", "ggeur.privacy.secure_sums_radius", 40,
    "ggeur.privacy.secure_sums_max_rows", 4096,
    "ggeur.privacy.secure_sums_fraction_bits", 38,
]  # fmt: skip


def outcome(cfg, workers: int) -> tuple:
    """Everything that a run gives, but for times."""
    started = Run(cfg)
    started.engine.workers = workers
    sent = []

    def listen(request, replies):
        sent.append((request.kind.name, dict(request.parts), replies))

    started.engine.listen = listen
    results = started.follow(lambda record: None)
    told = [results.round0, *results.rounds, results.calibrated, results.final]
    records = [as_json_value(record, "") for record in told if record is not None]
    for record in records:
        drop_seconds(record)
    return records, dict(started.history.own_bytes()), sent


def drop_seconds(record: object) -> None:
    if isinstance(record, dict):
        record.pop("seconds", None)
        for value in record.values():
            drop_seconds(value)


def assert_the_same(cfg, workers: int = 2) -> None:
    alone, shared = outcome(cfg, 1), outcome(cfg, workers)
    for here, there in zip(alone, shared):
        assert here == there


@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.steps", [1, 2]],
        [*words("scaffold"), *FIVE],
        [*words("local"), *NO_STEPS],
        ["ggeur.closed_form", "auto", *NO_STEPS],
        ["ggeur.noise", "fresh", "ggeur.memory_limit", 0],
        ["ggeur.epoch_share", 0.3, "dataloader.batch_size", 8],
    ],
    ids=str,
)
def test_two_send_the_same_bytes_as_one(config, settings):
    assert_the_same(config(*settings))


def test_secure_sums_are_the_same(config):
    cfg = config(*SUMS, "ggeur.closed_form", "lda")
    (*alone, _), (*shared, _) = outcome(cfg, 1), outcome(cfg, 2)  # masks are random
    assert alone == shared


@pytest.mark.parametrize("workers", [3, 7])
def test_there_may_be_more_than_clients(config, workers):
    assert_the_same(config(), workers)


@pytest.mark.slow
@pytest.mark.parametrize("method", ON_HEADS)
def test_every_method(config, method):
    assert_the_same(config(*words(method), *FIVE))


@pytest.mark.slow
@pytest.mark.parametrize("name", ADDED)
def test_every_augmentation(config, name):
    assert_the_same(config("ggeur.augmentation", name, *NO_STEPS, *FIVE))


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(CLOSED_FORMS))
def test_every_closed_form(config, form):
    few = ["ggeur.privacy.min_samples", 1]
    assert_the_same(config("ggeur.closed_form", form, *NO_STEPS, *FIVE, *few))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.calibrate", "ccvr", *NO_STEPS],
        ["ggeur.closed_form", "auto", "ggeur.personal.head", "means", *NO_STEPS],
        ["data.splits", "[0.6, 0.2, 0.2]", "eval.split", "['test', 'val']", *FIVE],
        ["ggeur.mlp_hidden_dim", 8, "model.dropout", 0.2],
        ["ggeur.statistics", "compressed", "ggeur.closed_form", "lda", *NO_STEPS],
    ],
    ids=str,
)
def test_other_answers(config, settings):
    assert_the_same(config(*settings))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedbn", "silobn"])
def test_networks(method):
    settings = {
        "ggeur.base_method": method,
        "ggeur.network.norm": "batch",
        "federate.total_round_num": 2,
    }
    one, two = (
        run("network_quickstart", overrides={**settings, "ggeur.workers": workers})
        for workers in (1, 2)
    )
    assert one.final.head_sha256 == two.final.head_sha256
    assert one.final.accuracy == two.final.accuracy


def test_what_is_logged_in_one_is_heard(config, caplog):
    cfg = config("dataloader.batch_size", 220, "dataloader.drop_last", True)
    started = Run(cfg)
    started.engine.workers = 2
    with caplog.at_level(logging.WARNING):
        started.follow(lambda record: None)
    never = [r for r in caplog.records if "never trains" in r.getMessage()]
    assert [r.getMessage()[:8] for r in never] == ["client 3"]


def test_an_error_in_one_is_that_of_the_run(config):
    cfg = config(*words("fedproto"), "train.optimizer.lr", 3)
    said = []
    for workers in (1, 2):
        started = Run(cfg)
        started.engine.workers = workers
        with pytest.raises(
            GGEURError, match=r"client \d, round \d: training diverged"
        ) as caught:
            started.follow(lambda record: None)
        said.append((type(caught.value), str(caught.value)))
        assert children() == []
    assert said[0] == said[1]


def test_a_refusal_can_be_passed_on():
    error = MessageError("is wrong", field="mean", sender="client 3")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.field) == (str(error), "mean")


def test_a_bug_in_one_shows_where_it_is(config, monkeypatch):
    def broken(self, broadcast):
        raise ZeroDivisionError("of a test")

    monkeypatch.setattr(TrainingClient, "train", broken)
    started = Run(config())
    started.engine.workers = 2
    with pytest.raises(ZeroDivisionError, match="of a test") as caught:
        started.follow(lambda record: None)
    assert "in broken" in str(caught.value.__cause__)


def test_a_killed_one_is_named_and_none_is_left(config):
    started = Run(config())
    started.engine.workers = 2

    def kill(record):
        os.kill(children()[0], signal.SIGKILL)

    with pytest.raises(GGEURError, match=r"worker \d \(process \d+\).*SIGKILL"):
        started.follow(kill)
    assert children() == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_a_stopped_run_leaves_none_behind(tmp_path, quickstart, stop):
    settings = ["federate.total_round_num", "100000", "ggeur.workers", "2"]
    command = [sys.executable, "-m", "federatedscope_ggeur", "--cfg"]
    command += [str(quickstart), *settings, "outdir", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    workers: list[int] = []
    end = time.monotonic() + 60
    try:
        while len(workers) < 2 and time.monotonic() < end:
            workers = children(process.pid)
            time.sleep(0.05)
        assert len(workers) == 2
        time.sleep(1.0)
        (os.killpg if stop == signal.SIGINT else os.kill)(process.pid, stop)
        process.communicate(timeout=60)
        assert process.returncode == (130 if stop == signal.SIGINT else -stop)
    finally:
        process.kill()
    while any(map(is_there, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_there, workers))


def test_a_run_goes_on_with_another_number(config, tmp_path):
    scaffold = [*words("scaffold"), *FIVE]
    whole = run(config(*scaffold), overrides=["federate.total_round_num", 4])
    place = str(tmp_path / "half")
    save = ["federate.save_to", place, "federate.total_round_num", 2]
    run(config(*scaffold), overrides=[*save, "ggeur.workers", 2])
    rest = ["federate.restore_from", place, "federate.total_round_num", 4]
    for workers in (1, 3):
        again = run(config(*scaffold), overrides=[*rest, "ggeur.workers", workers])
        assert again.final.head_sha256 == whole.final.head_sha256


def test_what_it_cannot_be_with_is_named(config):
    with pytest.raises(ConfigError, match=r"ggeur.workers 2: .*ggeur.num_threads 1"):
        Run(config("ggeur.workers", 2, "ggeur.num_threads", 2))
    assert Run(config("ggeur.workers", 1, "ggeur.num_threads", 2))


def test_commands_take_the_cores_where_that_pays(config):
    little = Run(config())
    little.use_cores()
    assert little.engine.workers == 1
    much = Run(config("federate.total_round_num", 10_000))
    much.use_cores()
    assert much.engine.workers == len(os.sched_getaffinity(0))
    given = Run(config("federate.total_round_num", 10_000, "ggeur.workers", 3))
    given.use_cores()
    assert given.engine.workers == 3


def test_memory_is_divided(config):
    """Sets that do not fit are drawn again, and give the same bits."""
    assert_the_same(config("ggeur.memory_limit", 20_000))


def children(of: int | None = None) -> list[int]:
    """The processes that a process has started and that are there."""
    of = of or os.getpid()
    found = []
    for task in os.listdir(f"/proc/{of}/task"):
        with open(f"/proc/{of}/task/{task}/children") as file:
            found += map(int, file.read().split())
    return [pid for pid in found if is_there(pid)]


def is_there(pid: int) -> bool:
    """Whether a process runs: it is neither gone nor waiting to be collected."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
