"""What a caller has set in torch changes no bit of a run, and a run changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from federatedscope_ggeur import FederatedData, run

pytestmark = pytest.mark.slow

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5)).astype("float32")
Y = np.arange(60) % 3
SITE = np.arange(60) // 20
RUNS = {
    "one-shot": {"ggeur.closed_form": "lda"},
    "linear": {"ggeur.closed_form": "none"},
    "dropout": {
        "ggeur.closed_form": "none", "ggeur.mlp_hidden_dim": 16, "model.dropout": 0.5,
        "ggeur.steps": [],
    },
    "dropout twice": {
        "ggeur.closed_form": "none", "ggeur.mlp_hidden_dim": 16, "model.dropout": 0.5,
        "ggeur.steps": [], "ggeur.base_method": "fedsam",
    },
}  # fmt: skip


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


def probabilities(kind: str) -> np.ndarray:
    settings = {**RUNS[kind], "ggeur.init": "random", "ggeur.keep": "trained"}
    settings["federate.total_round_num"] = 2
    data = FederatedData.from_arrays(X, Y, SITE)
    return run("ggeur_own_embeddings.yaml", data, overrides=settings).predict_proba(X)


@pytest.mark.parametrize("kind", RUNS)
def test_what_is_set_in_torch_changes_no_bit(kind):
    alone = probabilities(kind)
    state = torch.random.get_rng_state()
    for name, within in SET.items():
        with within():
            before = torch.get_default_dtype()
            assert np.array_equal(probabilities(kind), alone), name
            assert torch.get_default_dtype() == before
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["dropout", "dropout twice"])
def test_four_threads_give_the_bits_of_one(kind):
    alone = probabilities(kind)
    with float64(), ThreadPoolExecutor(4) as pool:
        for found in pool.map(probabilities, [kind] * 4):
            assert np.array_equal(found, alone)
        assert torch.get_default_dtype() == torch.float64
