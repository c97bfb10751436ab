"""Neither the order of clients, nor processes, nor a stop changes a bit of a run.

Each row of `RUNS` is a run with an exchange, or a state, that no other row has.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import pytest
import torch
from every_method import ADDED, ON_HEADS, words
from outcomes import backwards, outcome, restored

from federatedscope_ggeur import run
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation.exchanges.closed_form import keeping
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import numbers

FEW = ["ggeur.privacy.min_samples", 1]
FIVE = ["federate.client_num", 5, "federate.sample_client_num", 3]
PLAIN = ["ggeur.steps", []]
LDA = ["ggeur.closed_form", "lda", *FEW]
START = ["ggeur.init", "closed_form"]
CCVR = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20, *FEW]
MLP = ["ggeur.mlp_hidden_dim", 8, "model.dropout", 0.2]
IID = ["data.splitter", "iid", "data.splitter_args", []]
VALIDATED = [
    "data.splitter", "domain", "data.splitter_args", [],
    "data.splits", [0.3, 0.55, 0.15], "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss", *FEW,
]  # fmt: skip
RUNS = {
    "ggeur": [],
    "sets drawn again": ["ggeur.noise", "fresh", "ggeur.memory_limit", 0],
    "some sets kept": ["ggeur.memory_limit", 20_000],
    "a share of the epoch": ["ggeur.epoch_share", 0.3, "dataloader.batch_size", 8],
    "unseen": ["federate.client_num", 6, "federate.unseen_clients_rate", 0.5, *MLP],
    "scored at times": ["federate.make_global_eval", True, "eval.freq", 3],
    "scaffold": [*words("scaffold"), *FIVE],
    "alone": [*words("local"), *FIVE, *MLP],
    "one place": [*words("centralised"), *PLAIN],
    "standard": ["ggeur.space", "standard", *FIVE],
    "alone in a space": [*words("local"), *PLAIN, "ggeur.space", "standard"],
    "compressed": [
        "ggeur.geometry", "pooled", "ggeur.statistics", "compressed",
        "ggeur.compressed.rank", 4,
    ],
    "the mean of two heads": [
        "ggeur.closed_form", "auto", *START, "ggeur.keep", "average", *IID,
        "federate.client_num", 8, "ggeur.privacy.min_samples", 3,
    ],
    "a start": [*LDA, *START, *IID],
    "own heads": [*LDA, "ggeur.personal.head", "means"],
    "calibrated": [*CCVR, *MLP, *FIVE],
    "ccvr": CCVR,
    "validated": VALIDATED,
    "stopped early": [*VALIDATED, "early_stop.patience", 1, "early_stop.delta", 1e6],
    "fedgen": ["ggeur.augmentation", "fedgen", *FIVE, *PLAIN],
}  # fmt: skip
#: All parts by their names; a process of its own answers for each.
PARTS = {
    **{name: [*words(name), *FIVE] for name in ON_HEADS},
    **{name: ["ggeur.augmentation", name, *PLAIN, *FIVE] for name in ADDED},
    **{name: ["ggeur.closed_form", name, *FIVE, *FEW] for name in sorted(CLOSED_FORMS)},
}  # fmt: skip


@pytest.fixture
def made(config, monkeypatch):
    """The config of a run of these tables, with further settings."""
    # So that clients hold rows out beside heads that are seldom wrong, too.
    monkeypatch.setattr(keeping, "_SELDOM_WRONG", -1)

    def make(name, *settings):
        return config(*{**PARTS, **RUNS}[name], *settings)

    return make


def slow_but(names, fast):
    """All names; those that are not `fast` are slow."""
    slow = pytest.mark.slow
    return [n if n in fast else pytest.param(n, marks=slow) for n in names]


#: In which an order, or a stop, would show first.
ORDERED = ("ggeur", "scaffold", "own heads")
STOPPED = ("ggeur", "alone", "standard", "a start", "ccvr", "stopped early", "fedgen")


@pytest.fixture(scope="module")
def whole():
    """The outcome of a run that nothing disturbs, which is worked out once."""
    found = {}

    def of(made, name):
        if name not in found:
            found[name] = outcome(made(name))
        return deepcopy(found[name])

    return of


def test_the_mean_of_two_heads_holds_rows_out(made, whole):
    given = whole(made, "the mean of two heads")[0]
    assert given["calibrated"]["method"] == "average"
    assert given["calibrated"]["details"]["rows"] > 0


@pytest.mark.parametrize("name", slow_but(RUNS, ORDERED))
def test_in_another_order_of_clients(made, whole, name):
    assert outcome(made(name), order=backwards) == whole(made, name)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
@pytest.mark.parametrize("name", slow_but([*RUNS, *PARTS], ("scaffold", "own heads")))
def test_in_two_processes(made, whole, name):
    assert outcome(made(name), workers=2) == whole(made, name)


@pytest.mark.parametrize("name", ["ggeur", "calibrated"])
def test_one_client_at_a_time_and_with_no_memory(made, whole, name):
    small = made(name, "ggeur.round0_window", 1, "ggeur.memory_limit", 0)
    assert outcome(small)[:3] == whole(made, name)[:3]


#: After round 0, in the middle, and when all rounds are over.
STOPS = [
    *((name, 2) for name in STOPPED),
    *((name, last) for name in ("scaffold", "calibrated") for last in (0, 3)),
    *(
        pytest.param(name, 2, marks=pytest.mark.slow)
        for name in RUNS
        if name not in STOPPED
    ),
]


@pytest.mark.parametrize(("name", "last"), STOPS)
def test_stopped_and_restored(made, whole, tmp_path, name, last):
    found = restored(lambda *more: made(name, *more), tmp_path / "point", last)
    assert found[:3] == whole(made, name)[:3]


def test_own_heads_outlive_a_stop_also_in_the_run_s_folder(made, whole, tmp_path):
    going = Run(made("own heads"))
    going.engine.keep_in(tmp_path)
    going.follow(lambda record: None)
    point = tmp_path / "private" / "checkpoint"
    found = outcome(made("own heads", "federate.restore_from", point))
    assert found[:3] == whole(made, "own heads")[:3]
    assert len(found[2]) == 3


# Whole runs whose clients train at once. The steps are tested at their room.


def followed(cfg, packs=False):
    run = Run(cfg)
    run.engine.packs = packs
    return run, run.follow(lambda record: None)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_the_numbers_are_those_of_clients_one_by_one(config, method):
    _, alone = followed(config("ggeur.base_method", method))
    run, at_once = followed(
        config("ggeur.base_method", method, "ggeur.batched", "always")
    )
    torch.testing.assert_close(
        torch.cat([p.flatten() for p in at_once.model.parameters()]),
        torch.cat([p.flatten() for p in alone.model.parameters()]),
        rtol=1e-4,
        atol=1e-6,
    )
    for one, other in zip(alone.rounds, at_once.rounds):
        assert (one.bytes_up, one.bytes_down) == (other.bytes_up, other.bytes_down)
        assert one.accuracy == other.accuracy
    assert "training on cpu, all clients of a round at once" in run.describe()


def test_packing_every_answer_changes_nothing(config):
    cfg = config("ggeur.batched", "always", "ggeur.base_method", "feddyn")
    _, carried = followed(cfg)
    _, packed = followed(cfg, packs=True)
    assert numbers(packed)["rounds"] == numbers(carried)["rounds"]
    assert numbers(packed)["final"] == numbers(carried)["final"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["ggeur.augmentation", "fedmix"], "fedavg + fedmix has no batched form"),
        (["ggeur.base_method", "fedprox", "fedprox.mu", 0.1], ""),
    ],
)
def test_what_has_no_batched_form_is_said_and_trains_as_before(config, settings, why):
    run, at_once = followed(config(*settings, "ggeur.batched", "always"))
    (line,) = (line for line in run.describe() if line.startswith("training on"))
    assert line.endswith(f", one client after the other: {why}" if why else "at once")
    if why:
        _, alone = followed(config(*settings))
        assert numbers(at_once)["rounds"] == numbers(alone)["rounds"]


def test_by_default_a_cpu_trains_one_client_after_the_other(config):
    run = Run(config())
    assert not [line for line in run.describe() if line.startswith("training on")]


# What a caller has set in torch changes no bit of a run, and a run changes nothing.


ROWS = np.random.default_rng(0).normal(size=(60, 16)).astype("float32")
DROPOUT = [*PLAIN, "ggeur.mlp_hidden_dim", 16, "model.dropout", 0.5]
RUNS_IN_TORCH = {
    "one-shot": LDA,
    "linear": [],
    "dropout": DROPOUT,
    "dropout twice": [*DROPOUT, *words("fedsam")],
}


@contextmanager
def float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SET = {
    "float64": float64,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "default device": lambda: torch.device("meta"),
}


def probabilities(cfg) -> np.ndarray:
    return run(cfg).predict_proba(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS_IN_TORCH)
def test_what_is_set_in_torch_changes_no_bit(config, kind):
    cfg = config(*RUNS_IN_TORCH[kind])
    alone = probabilities(cfg)
    state = torch.random.get_rng_state()
    for name, within in SET.items():
        with within():
            before = torch.get_default_dtype()
            assert np.array_equal(probabilities(cfg), alone), name
            assert torch.get_default_dtype() == before
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dropout", "dropout twice"])
def test_four_threads_give_the_bits_of_one(config, kind):
    cfg = config(*RUNS_IN_TORCH[kind])
    alone = probabilities(cfg)
    with float64(), ThreadPoolExecutor(4) as pool:
        for found in pool.map(probabilities, [cfg] * 4):
            assert np.array_equal(found, alone)
        assert torch.get_default_dtype() == torch.float64
