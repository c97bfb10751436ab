"""Neither the order of clients, nor processes, nor a stop changes a bit of a run."""

from __future__ import annotations

import sys

import pytest
from digits_network import digits_words
from outcomes import backwards, outcome, restored

from federatedscope_ggeur.cfg_ggeur.load import load_config

pytestmark = pytest.mark.slow

#: Of a network with running statistics.
NETWORKS = {
    "fedbn": ["ggeur.base_method", "fedbn"],
    "silobn": ["ggeur.base_method", "silobn"],
    "fedfa_plus": [
        "ggeur.augmentation", "fedfa_plus", "ggeur.fedfa_plus.probability", 1.0,
    ],
    "fedpg": [
        "ggeur.augmentation", "fedpg", "ggeur.fedpg.images_per_class", 3,
        "ggeur.fedpg.noise_dim", 4, "ggeur.fedpg.steps", 3,
        "ggeur.fedpg.generator_batch", 8, "ggeur.fedpg.prototypes", "kept",
        "federate.sample_client_num", 2,
    ],
}  # fmt: skip


@pytest.fixture(params=NETWORKS)
def made(request, quickstart, tmp_path):
    """The config of a run of the table, with further settings."""
    own = [*digits_words(tmp_path / "cache"), *NETWORKS[request.param]]
    return lambda *more: load_config(quickstart, [str(part) for part in (*own, *more)])


def test_in_another_order_in_two_processes_and_after_a_stop(made, tmp_path):
    whole = outcome(made())
    assert outcome(made(), order=backwards) == whole
    if sys.platform == "linux":  # processes are forked
        assert outcome(made(), workers=2) == whole
    assert restored(made, tmp_path / "point", 1)[:3] == whole[:3]
