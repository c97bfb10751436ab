"""The keys of networks: what they take."""

import pytest

from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.keys import NETWORK_KEYS

RULES = {key.name.partition(".")[2]: key.rule for key in NETWORK_KEYS}


def test_each_is_a_setting_with_its_default():
    default = NetworkSettings("")
    for key in NETWORK_KEYS:
        found = getattr(default, key.name.partition(".")[2])
        assert key.default == (list(found) if isinstance(found, tuple) else found)
        assert not key.rule(key.default)


@pytest.mark.parametrize("name", ["", "resnet18", "timm:swin_tiny_patch4_window7_224"])
def test_names_that_are_taken(name):
    assert not RULES["name"](name)


@pytest.mark.parametrize("name", ["resnet", "timm", "timm:", "resnet18:x", ":x", 3])
def test_names_that_are_not(name):
    problem = RULES["name"](name)
    assert problem
    assert name == 3 or ("resnet18" in problem and "timm:<model>" in problem)


@pytest.mark.parametrize("value", [0.5, [0.5], [0.5] * 4, ["a", "b", "c"], "0.5"])
def test_three_numbers(value):
    assert RULES["mean"](value)
    assert RULES["std"](value)


def test_deviations_are_positive():
    assert not RULES["std"]([0.1, 1, 2])
    assert RULES["std"]([0.1, 0, 2])
    assert not RULES["mean"]([0, -1, 2])


def test_all_processes_have_the_same_network():
    """But for where its first weights are from, and how it computes."""
    own = {key.name for key in NETWORK_KEYS if not key.shared}
    assert own == {"network.weights", "network.precision"}
