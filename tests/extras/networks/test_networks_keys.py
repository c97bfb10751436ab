"""The keys of networks: what they take."""

import pytest

from federatedscope_ggeur.cfg_ggeur.demands import other_model_of
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.keys import NETWORK_KEYS

RULES = {key.name.partition(".")[2]: key.rule for key in NETWORK_KEYS}


def test_each_is_a_setting_with_its_default():
    default = NetworkSettings("")
    for key in NETWORK_KEYS:
        found = getattr(default, key.name.partition(".")[2])
        assert key.default == (list(found) if isinstance(found, tuple) else found)
        assert not key.rule(key.default)


def test_all_processes_have_the_same_network():
    """But for where its first weights are from, and how it computes."""
    own = {key.name for key in NETWORK_KEYS if not key.shared}
    assert own == {"network.weights", "network.precision"}


# Networks in a config: what goes together and what does not.


BASE = {
    "federate.method": "ggeur",
    "data.type": "bundled_digits@ggeur",
    "ggeur.use": True,
    "ggeur.steps": [],
    "ggeur.encoder.name": "image",
    "ggeur.network.name": "digits_cnn",
}


def load(**others):
    return load_config(None, {**BASE, **others})


def changed(key, value, **others):
    return load(**{key: value}, **others)


def test_a_network():
    cfg = load_config(None, {**BASE, "ggeur.network.mean": [0, 0.5, 1]})
    assert other_model_of(cfg) == NetworkSettings("digits_cnn", mean=(0.0, 0.5, 1.0))
    task = run_settings(cfg, 10, 64, 4).role.task
    assert task.model.other.name == "digits_cnn"
    assert task.space == "raw"
    assert other_model_of(default_config()) is None


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("ggeur.encoder.name", "hog", r"encoder\.name: must be image .*digits_cnn"),
        ("ggeur.steps", [1, 2], r"steps: must be \[\] .*draws embeddings"),
        ("ggeur.closed_form", "lda", r"closed_form: must be none"),
        ("ggeur.mlp_hidden_dim", 8, r"mlp_hidden_dim: must be 0"),
        ("ggeur.network.name", "restnet18", r"; did you mean resnet18\?"),
        ("ggeur.privacy.train_withheld", False, r"train_withheld: must be True"),
        ("ggeur.network.name", "resnet", r"network\.name: must be one of .*resnet18"),
        ("ggeur.network.name", "timm:", r"network\.name: must be one of .*timm:<m"),
        ("ggeur.network.std", [0, 1, 1], r"network\.std: .* above 0"),
        ("ggeur.network.mean", [0.5] * 4, r"network\.mean: must be three numbers"),
        ("ggeur.network.stem", "large", r"network\.stem: must be one of cifar"),
    ],
)
def test_what_does_not_go_with_one(key, value, problem):
    with pytest.raises(ConfigError, match=problem):
        changed(key, value)


def test_what_needs_one():
    for name, value in (("norm", "group"), ("mean", [0.1, 0.2, 0.3])):
        with pytest.raises(ConfigError, match=rf"network\.{name}: .* is for a network"):
            load_config(
                None,
                {
                    **BASE,
                    "ggeur.network.name": "",
                    "ggeur.encoder.name": "hog",
                    f"ggeur.network.{name}": value,
                },
            )
    with pytest.raises(ConfigError, match=r"network\.name: cannot be '' .*image"):
        changed("ggeur.network.name", "")
