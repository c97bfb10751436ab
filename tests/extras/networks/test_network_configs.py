"""The configs of GGEUR's rows without CLIP, and the quickstart of networks."""

import pytest

from federatedscope_ggeur.cfg_ggeur.demands import other_model_of
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import example_folder
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.keys import NetworkKeys

EXAMPLES = example_folder()
NETWORKS = {"digits": "resnet18", "pacs": "resnet34"}
#: Table 8: clients, rounds, batch size, learning rate.
TABLE_8 = {"digits": (4, 50, 16, 1e-2), "pacs": (4, 50, 16, 1e-3)}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_papers_numbers(name):
    cfg = load_config(EXAMPLES / f"ggeur_{name}_{NETWORKS[name]}.yaml")
    clients, rounds, batch, rate = TABLE_8[name]
    assert cfg.federate.client_num == clients
    assert cfg.federate.total_round_num == rounds
    assert (cfg.dataloader.batch_size, cfg.train.optimizer.lr) == (batch, rate)
    assert cfg.ggeur.network.name == NETWORKS[name]
    heads = load_config(EXAMPLES / f"ggeur_{name}.yaml")
    for key in ("type", "splits", "splitter", "splitter_args"):
        assert cfg.data[key] == heads.data[key]


@pytest.mark.slow
def test_the_quickstart_learns_the_digits(tmp_path):
    words = ["ggeur.encoder.cache", str(tmp_path), "federate.total_round_num", 14]
    learnt = run(EXAMPLES / "network_quickstart.yaml", overrides=words)
    assert learnt.final.avg > 0.9


# The configs of FedFA+'s settings, each on a miniature of its data set.


#: Table 1 and section 5.1: clients, clients a round, rounds, epochs, batch size, rate;
#: the network and the side of its images (-1: the encoder's own, 32).
TABLE_1 = {
    "office": (4, 0, 400, 1, 32, 0.01, "alexnet_bn", 256),
    "domainnet": (6, 0, 400, 1, 32, 0.01, "alexnet_bn", 256),
    "cifar10": (100, 10, 100, 10, 10, 0.1, "resnet18", -1),
    "tiny_imagenet": (100, 5, 500, 5, 20, 0.1, "resnet18", 64),
    "femnist": (3400, 50, 1000, 5, 32, 0.05, "resnet18", 28),
}


def fedfa_path(name):
    return EXAMPLES / f"fedfa_{name}.yaml"


@pytest.mark.parametrize("name", TABLE_1)
def test_fedfas_papers_numbers(name):
    cfg = load_config(fedfa_path(name))
    *numbers, network, side = TABLE_1[name]
    federate, train = cfg.federate, cfg.train
    assert numbers == [
        federate.client_num,
        max(federate.sample_client_num, 0),
        federate.total_round_num,
        train.local_update_steps,
        cfg.dataloader.batch_size,
        train.optimizer.lr,
    ]
    assert (cfg.ggeur.network.name, cfg.ggeur.encoder.image_size) == (network, side)
    assert (train.batch_or_epoch, train.optimizer.type) == ("epoch", "SGD")
    assert (federate.ignore_weight, cfg.dataloader.drop_last) == (True, True)
    method = cfg.ggeur.fedfa_plus
    assert (method.variant, method.probability, method.momentum) == ("plus", 0.5, 0.99)
    assert (method.bins, method.weight, method.temperature) == (8, 0.1, 0.01)


def test_office_has_fedbns_parts():
    """Of which sizes these are: tests/data/images/test_domain_images.py."""
    cfg = load_config(fedfa_path("office"))
    assert cfg.data.splits == [0.479, 0.321, 0.2]
    assert cfg.ggeur.office_caltech.split == "fedbn"


# The keys of networks: what they take.


def test_all_processes_have_the_same_network():
    """But for where its first weights are from, and how it computes."""
    own = {key.name for key in NetworkKeys.declared() if not key.shared}
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


def test_a_network():
    cfg = load(**{"ggeur.network.mean": [0, 0.5, 1]})
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
        load(**{key: value})


def test_what_needs_one():
    for name, value in (("norm", "group"), ("mean", [0.1, 0.2, 0.3])):
        own = {"ggeur.network.name": "", "ggeur.encoder.name": "hog"}
        with pytest.raises(ConfigError, match=rf"network\.{name}: .* is for a network"):
            load(**own, **{f"ggeur.network.{name}": value})
    with pytest.raises(ConfigError, match=r"network\.name: cannot be '' .*image"):
        load(**{"ggeur.network.name": ""})
