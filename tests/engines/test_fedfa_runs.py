"""FedFA+, MixStyle and FedSAM in whole runs of a network on the embedded engine."""

from __future__ import annotations

import random

import pytest
import torch
from digits_network import digits_words
from safetensors.torch import load

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import example_folder
from federatedscope_ggeur.reporting import numbers

PLUS = ("ggeur.augmentation", "fedfa_plus")
LAYERS = (*PLUS, "ggeur.fedfa_plus.probability", "1.0")
NOTHING = {
    "l at probability 0": (
        *PLUS, "ggeur.fedfa_plus.variant", "l", "ggeur.fedfa_plus.probability", "0.0",
    ),
    "h of weight 0": (
        *PLUS, "ggeur.fedfa_plus.variant", "h", "ggeur.fedfa_plus.weight", "0.0",
    ),
    "mixstyle at probability 0": (
        "ggeur.augmentation", "mixstyle", "ggeur.mixstyle.probability", "0.0",
    ),
    "fedsam at rho 0": ("ggeur.base_method", "fedsam", "ggeur.fedsam.rho", "0.0"),
}  # fmt: skip
SOMETHING = {
    "l": (*LAYERS, "ggeur.fedfa_plus.variant", "l"),
    "plus": LAYERS,
    "mixstyle": ("ggeur.augmentation", "mixstyle"),
    "fedsam": ("ggeur.base_method", "fedsam"),
    "fedasam": ("ggeur.base_method", "fedsam", "ggeur.fedsam.adaptive", "True"),
    "fedsam + plus": (*LAYERS, "ggeur.base_method", "fedsam"),
}
NORMS = ("batch", "group")


@pytest.fixture(scope="module")
def digits_config(tmp_path_factory):
    """The run of `digits_words`, with settings added to it."""
    own = digits_words(tmp_path_factory.mktemp("digits") / "cache")
    config = example_folder() / "ggeur_quickstart.yaml"

    def make(*words):
        return load_config(config, [*own, *map(str, words)])

    return make


def followed(config, *words, **options):
    run = Run(config(*words), **options)
    run.results = run.follow(lambda record: None)
    run.tensors = load(run.history.head_bytes())
    return run


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) for name in one
    )


@pytest.fixture(scope="module", params=NORMS)
def plain(request, digits_config):
    """The run without any of it; its network's norm."""
    norm = ("ggeur.network.norm", request.param)
    return norm, followed(digits_config, *norm).tensors


@pytest.mark.slow
@pytest.mark.parametrize("words", NOTHING.values(), ids=NOTHING)
def test_nothing_is_fedavg_to_the_bit(plain, words, digits_config):
    norm, tensors = plain
    assert same(followed(digits_config, *norm, *words).tensors, tensors)


@pytest.mark.slow
@pytest.mark.parametrize("words", SOMETHING.values(), ids=SOMETHING)
def test_something_is_not(plain, words, digits_config):
    norm, tensors = plain
    found = followed(digits_config, *norm, *words).tensors
    assert not same(found, tensors)
    assert all(torch.isfinite(t).all() for t in found.values())


def test_the_order_in_which_clients_run_changes_nothing(digits_config):
    def shuffled(clients):
        return random.Random(5).sample(clients, len(clients))

    words = (*LAYERS, "ggeur.network.norm", "batch")
    one, other = (
        followed(digits_config, *words, order=order) for order in (sorted, shuffled)
    )
    assert numbers(one.results) == numbers(other.results)
    assert same(one.tensors, other.tensors)


def test_a_domain_can_be_left_out(digits_config):
    words = (
        *LAYERS, "federate.client_num", "3", "ggeur.unseen_domains", "['noisy']",
    )  # fmt: skip
    results = followed(digits_config, *words).results
    assert set(results.rounds[-1].accuracy) >= {"noisy"}
    assert "noisy" not in {client.domain for client in results.clients}


@pytest.mark.slow
def test_a_run_that_goes_on_ends_as_one_that_never_stopped(digits_config, tmp_path):
    words = (*LAYERS, "federate.save_to", str(tmp_path / "checkpoint"))
    whole = followed(digits_config, *LAYERS, "federate.total_round_num", "4")
    followed(digits_config, *words, "federate.total_round_num", "2")
    restored = (
        "federate.restore_from", str(tmp_path / "checkpoint"),
        "federate.total_round_num", "4",
    )  # fmt: skip
    assert same(followed(digits_config, *LAYERS, *restored).tensors, whole.tensors)


@pytest.mark.parametrize("added", ["fedfa_plus", "mixstyle"])
class TestRefusals:
    def test_a_head_on_embeddings(self, added, quickstart):
        cfg = load_config(quickstart, ["ggeur.augmentation", added])
        with pytest.raises(ConfigError, match=rf"{added}.*stages"):
            Run(cfg)

    def test_a_stage_that_the_network_lacks(self, added, digits_config):
        cfg = digits_config(
            "ggeur.augmentation", added, f"ggeur.{added}.stages", "[2, 7]"
        )
        with pytest.raises(ConfigError, match=r"stages \[2, 7\].*3 stages"):
            Run(cfg)

    @pytest.mark.parametrize("stages", ["[0]", "[2, 1]", "1", "['a']"])
    def test_what_are_no_stages(self, added, stages, digits_config):
        words = ("ggeur.augmentation", added, f"ggeur.{added}.stages", stages)
        with pytest.raises(ConfigError, match=rf"ggeur\.{added}\.stages"):
            Run(digits_config(*words))


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("variant", "x", "must be one of l, plus"),
        ("probability", "1.5", r"must lie in 0\.\.1"),
        ("momentum", "1.0", "must be at least 0 and below 1"),
        ("bins", "2", "must be a whole number in 3"),
        ("weight", "-0.1", "must lie in 0"),
        ("temperature", "0.0", "must be above 0"),
        ("noise", "0.0", "must be above 0"),
    ],
)
def test_values_that_cannot_be(key, value, problem, digits_config):
    with pytest.raises(ConfigError, match=rf"ggeur\.fedfa_plus\.{key}: {problem}"):
        digits_config(*PLUS, f"ggeur.fedfa_plus.{key}", value)


def test_settings_without_effect_are_noted(digits_config):
    run = Run(
        digits_config(
            *PLUS, "ggeur.fedfa_plus.variant", "c", "ggeur.fedfa_plus.bins", "9"
        )
    )
    note = "ggeur.fedfa_plus.bins has no effect with ggeur.fedfa_plus.variant: c"
    assert note in run.notes
