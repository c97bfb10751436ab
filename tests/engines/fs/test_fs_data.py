"""The data function and the model builder in FederatedScope (FS): its data objects.

Who holds which rows is `data/`'s matter. Here they are put into FS's dict of splits, by
role, with the sizes that FS's model builder needs. Tests of engines/fs/data.py and
engines/fs/registration.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from standalone import merged

from federatedscope_ggeur.data import load_data
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.models import ModelSettings, build_model


@pytest.fixture
def get(fs):
    """FS's own `get_data` for a role."""

    def get(*settings, also=()):
        from federatedscope.core.auxiliaries.data_builder import get_data

        return get_data(merged(fs.file(*settings), also).clone())

    return get


def distributed(role: str, **settings) -> list:
    words = ["federate.mode", "distributed", "distribute.role", role]
    names = {"data_idx": "distribute.data_idx", "number": "ggeur.client_number"}
    for name, value in settings.items():
        words += [names.get(name, f"ggeur.{name}"), value]
    return words


def same(splits, held) -> bool:
    return all(
        np.array_equal(splits[part]["x"], getattr(held, part).features.numpy())
        and np.array_equal(splits[part]["y"], getattr(held, part).labels.numpy())
        for part in ("train", "test")
    )


DEALT = [{"alpha": 0.01, "min_per_class": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["federate.client_num", 7, "data.splitter", "iid", "data.splitter_args", []],
        ["federate.client_num", 6, "data.splitter_args", DEALT],
    ],
    ids=["iid", "lds"],
)
def test_standalone_clients_hold_what_they_hold_on_the_embedded_engine(
    get, config, settings
):
    data, cfg = get(*settings)
    expected = load_federated_data(config(*settings))
    assert list(data) == list(range(len(expected.clients) + 1))
    for held in expected.clients:
        splits = data[held.number]
        assert same(splits, held)
        assert splits.held.domain == held.domain
        assert splits["train"]["x"].dtype == np.float32
    assert cfg.federate.client_num == len(expected.clients)


def test_pixels_stay_bytes(get, config, pictures_of_digits):
    data, cfg = get(*pictures_of_digits)
    assert cfg.model.input_shape == (64,)
    for held in load_federated_data(config(*pictures_of_digits)).clients:
        assert same(data[held.number], held)
        assert data[held.number]["train"]["x"].dtype == np.uint8
        assert data[held.number].held.train.image_shape == (1, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("role", [[], distributed("server")], ids=["all", "server"])
def test_the_server_holds_the_test_sets_that_it_scores(get, role):
    unseen = ["ggeur.unseen_domains", "['art']", "federate.client_num", 2]
    for settings, domains in (
        (["federate.make_global_eval", True], {"art", "photo", "sketch"}),
        (unseen, {"art"}),
    ):
        data, cfg = get(*settings, also=role)
        held = data if role else data[0]
        assert set(held.rows["test"]) == domains
        assert cfg.model.input_shape == (16,)


@pytest.mark.parametrize("hidden", [0, 6])
def test_the_model_s_sizes_are_those_of_the_data(get, hidden):
    from federatedscope.core.auxiliaries.model_builder import get_model

    data, cfg = get("ggeur.mlp_hidden_dim", hidden, "model.dropout", 0.3)
    model = cfg.model
    assert (model.hidden, model.out_channels, model.input_shape) == (hidden, 12, (16,))
    expected = build_model(16, 12, ModelSettings(hidden, 0.3))
    for number in (0, 1):  # the server's first split has no rows
        made = get_model(model, data[number])
        assert repr(made) == repr(expected)
        assert made(torch.zeros(2, 16)).shape == (2, 12)


def test_a_server_without_data_gets_an_empty_model(get):
    from federatedscope.core.auxiliaries.model_builder import get_model

    data, cfg = get(also=distributed("server"))
    assert data is None
    assert not list(get_model(cfg.model, None).parameters())
    assert get()[0][0].rows["test"] == {}


@pytest.mark.slow
def test_embeddings_have_the_dimensions_that_were_asked_for(get):
    own = distributed("client", data_idx=-1, number=2, domain="a")
    for role in ([], distributed("client", data_idx=1), own):
        get("ggeur.embedding_dim", 16, also=role)
        with pytest.raises(ConfigError, match=r"ggeur\.embedding_dim: is 512"):
            get("ggeur.embedding_dim", 512, also=role)


def test_other_types_are_left_to_fs(federatedscope):
    from federatedscope_ggeur.engines.fs.registration import find_data, find_model

    cfg = federatedscope.global_cfg.clone()
    assert find_data(cfg) is None
    assert find_model(cfg.model, (3,)) is None


def test_the_seed_is_the_user_s_again(get):
    """FS loads data under a seed of its own."""

    def draw() -> tuple[float, float]:
        return np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    get("seed", 5)
    drawn = draw()
    from federatedscope.core.auxiliaries.utils import setup_seed

    setup_seed(5)
    assert drawn == draw()


@pytest.mark.slow
def test_a_distributed_client_holds_the_part_of_its_index(get, config):
    settings = ["federate.client_num", 5]
    for held in load_federated_data(config(*settings)).clients:
        also = distributed("client", data_idx=held.number)
        splits, cfg = get(*settings, also=also)
        assert (splits.held.number, splits.held.domain) == (held.number, held.domain)
        assert same(splits, held)
        assert cfg.model.out_channels == 12


@pytest.mark.slow
def test_a_client_with_its_own_data_holds_all_of_it(get, tmp_path):
    also = distributed("client", data_idx=-1, number=1, domain="all")
    splits, _ = get(also=also)  # several domains in its folder are one
    assert len(splits["train"]["y"]) + len(splits["test"]["y"]) == 120 + 96 + 108
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "embeddings" / "art.npz").rename(folder / "art.npz")
    also = distributed("client", data_idx=-1, number=4, domain="atelier")
    splits, cfg = get("data.root", folder, also=also)
    dataset = load_data("embeddings@ggeur", str(folder), cfg.data.splits, cfg.seed)
    (domain,) = dataset.domains
    assert (splits.held.number, splits.held.domain) == (4, "atelier")
    assert same(splits, domain)
    assert splits.held.train.domain == "atelier"
    with pytest.raises(DataError, match="nowhere"):
        get("data.root", tmp_path / "nowhere", also=also)


@pytest.mark.parametrize(
    ("also", "problem"),
    [
        ({"data_idx": -1, "domain": "art"}, r"ggeur\.client_number: must be set"),
        ({"data_idx": -1, "number": 2}, r"ggeur\.domain: must name"),
        ({"data_idx": 0}, r"distribute\.data_idx: must lie in 1\.\.3"),
        ({"data_idx": 4}, r"distribute\.data_idx: must lie in 1\.\.3"),
        ({"data_idx": 2, "number": 1}, r"ggeur\.client_number: is 1, but"),
    ],
)
def test_who_a_client_is_must_be_said_once(get, also, problem):
    with pytest.raises(ConfigError, match=problem):
        get(also=distributed("client", **also))
