"""Keys of distributed runs, and what settings alone say of the data."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.check import given_handshake
from federatedscope_ggeur.cfg_ggeur.distributed_keys import DISTRIBUTED_KEYS
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import ConfigError

CLASSES = [str(label) for label in range(12)]
ENCODER = "unknown (precomputed embeddings)"


def test_deadlines_are_no_longer_than_a_clock_can_wait():
    keys = [key for key in DISTRIBUTED_KEYS if key.name.startswith("deadline.")]
    assert len(keys) == 6
    for key in keys:
        assert key.rule(1e9) == key.rule(0.5) == ""
        assert "1e+09" in key.rule(1e10)
        assert bool(key.rule(0.0)) == (key.name != "deadline.return")


def test_what_settings_say_of_the_data(config):
    assert given_handshake(config().ggeur) == {}
    settings = ("ggeur.agreed.class_names", ["a", "b"], "ggeur.agreed.encoder", "e")
    said = given_handshake(config("ggeur.embedding_dim", 5, *settings).ggeur)
    assert said == {"dim": 5, "class_names": ("a", "b"), "encoder": "e"}


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [("class_names", CLASSES, ["cat", "dog"]), ("encoder", ENCODER, "ViT-B-16")],
)
def test_data_that_are_others_are_refused(config, key, right, wrong):
    assert run(config(f"ggeur.agreed.{key}", right)).rounds
    with pytest.raises(ConfigError, match=rf"ggeur\.agreed\.{key}: is .* have "):
        run(config(f"ggeur.agreed.{key}", wrong))
