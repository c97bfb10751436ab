"""The data function and the model builder in FederatedScope (FS).

Tests of engines/fs/model.py.
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


def test_standalone_clients_hold_what_they_hold_on_the_embedded_engine(get, config):
    settings = ["federate.client_num", 7, "data.splitter", "iid",
                "data.splitter_args", []]  # fmt: skip
    data, cfg = get(*settings)
    expected = load_federated_data(config(*settings))
    assert list(data) == list(range(8))
    for held in expected.clients:
        splits = data[held.number]
        assert same(splits, held)
        assert splits.held.domain == held.domain
        assert splits["train"]["x"].dtype == np.float32
    assert cfg.federate.client_num == 7


@pytest.mark.parametrize(
    ("clients", "splitter", "args"),
    [
        (4, "domain", "[]"),
        (20, "classes", "[{'per_client': 2}]"),
        (40, "subset", "[{'share': 0.9}]"),
    ],
)
def test_pixels_of_the_bundled_digits(get, config, tmp_path, clients, splitter, args):
    settings = ["data.type", "bundled_digits@ggeur", "ggeur.encoder.name", "image",
                "ggeur.encoder.image_size", 8, "ggeur.encoder.num_workers", 0,
                "ggeur.network.name", "digits_cnn", "ggeur.steps", [],
                "dataloader.drop_last", True,
                "ggeur.encoder.cache", str(tmp_path), "federate.client_num", clients,
                "data.splitter", splitter, "data.splitter_args", args]  # fmt: skip
    data, cfg = get(*settings)
    assert cfg.model.input_shape == (64,)
    expected = load_federated_data(config(*settings))
    assert expected.image_shape == (1, 8, 8)
    for held in expected.clients:
        assert same(data[held.number], held)
        assert data[held.number]["train"]["x"].dtype == np.uint8
        assert data[held.number].held.train.image_shape == (1, 8, 8)


def test_users_are_clients(get, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"features": rng.normal(size=(30, 5)), "labels": np.arange(30) % 3}
    (tmp_path / "own").mkdir()
    np.savez(tmp_path / "own" / "all.npz", **arrays, users=np.arange(30) % 6)
    settings = ["data.root", str(tmp_path / "own"), "data.splitter", "natural",
                "data.splitter_args", "[]", "federate.client_num", 6]  # fmt: skip
    data, _ = get(*settings)
    for number in range(1, 7):
        users = data[number].held.train.users
        assert set(users.tolist()) == {number - 1}
    with pytest.raises(ConfigError, match="natural finds 6 users in domain 'all'"):
        get(*settings, "federate.client_num", 7)


def test_the_server_holds_the_test_sets_that_it_scores(get):
    assert get()[0][0].rows["test"] == {}
    data, _ = get("federate.make_global_eval", True)
    assert set(data[0].rows["test"]) == {"art", "photo", "sketch"}
    data, _ = get("ggeur.unseen_domains", "['art']", "federate.client_num", 2)
    assert set(data[0].rows["test"]) == {"art"} == set(data[0].known.unseen)
    assert {data[k].held.domain for k in (1, 2)} == {"photo", "sketch"}


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
    model = get_model(cfg.model, None)
    assert not list(model.parameters())


@pytest.mark.parametrize(
    "role",
    [
        [],
        distributed("client", data_idx=1),
        distributed("client", data_idx=-1, number=2, domain="a"),
        [*distributed("server"), "federate.make_global_eval", True],
    ],
    ids=["standalone", "client", "own data", "server"],
)
def test_embeddings_have_the_dimensions_that_were_asked_for(get, role):
    get("ggeur.embedding_dim", 16, also=role)
    with pytest.raises(ConfigError, match=r"ggeur\.embedding_dim: is 512"):
        get("ggeur.embedding_dim", 512, also=role)


def test_rows_are_dealt_beforehand_as_on_the_embedded_engine(get, config):
    args = [{"alpha": 0.01, "min_per_class": 1}]
    settings = ["data.splitter", "lds", "data.splitter_args", args]
    settings += ["federate.client_num", 6]
    data, _ = get(*settings)
    for held in load_federated_data(config(*settings)).clients:
        assert same(data[held.number], held)
        assert len(held.train.labels.unique()) == 12


def test_other_types_are_left_to_fs(federatedscope):
    from federatedscope_ggeur.engines.fs.registration import find_data, find_model

    cfg = federatedscope.global_cfg.clone()
    assert find_data(cfg) is None
    assert find_model(cfg.model, (3,)) is None


def test_the_seed_is_the_user_s_again(get):
    """FS loads data under a seed of its own."""
    get("seed", 5)
    drawn = _draw()
    from federatedscope.core.auxiliaries.utils import setup_seed

    setup_seed(5)
    assert drawn == _draw()


def _draw() -> tuple[float, float]:
    """From the global generators, which FS seeds."""
    return np.random.rand(), torch.rand(1).item()  # noqa: NPY002


class TestDistributed:
    def test_a_client_holds_the_part_of_its_index(self, get, config):
        settings = ["federate.client_num", 5]
        expected = load_federated_data(config(*settings))
        for held in expected.clients:
            also = distributed("client", data_idx=held.number)
            splits, cfg = get(*settings, also=also)
            assert splits.held.number == held.number
            assert splits.held.domain == held.domain
            assert same(splits, held)
            assert cfg.model.out_channels == 12

    @pytest.mark.parametrize(
        "settings",
        [
            ["federate.make_global_eval", True],
            ["ggeur.unseen_domains", "['art']", "federate.client_num", 2],
        ],
    )
    def test_a_server_that_scores_loads_the_test_sets(self, get, settings):
        alone, cfg = get(*settings, also=distributed("server"))
        together, _ = get(*settings)
        assert alone.rows["test"].keys() == together[0].rows["test"].keys()
        for name, rows in alone.rows["test"].items():
            assert rows.features.equal(together[0].rows["test"][name].features)
        assert cfg.model.input_shape == (16,)

    def test_a_client_with_its_own_data_holds_all_of_it(self, get, tmp_path):
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
        assert len(splits["train"]["y"]) + len(splits["test"]["y"]) == 120

    def test_several_domains_in_its_folder_are_one(self, get):
        also = distributed("client", data_idx=-1, number=1, domain="all")
        splits, _ = get(also=also)
        assert len(splits["train"]["y"]) + len(splits["test"]["y"]) == 120 + 96 + 108
        assert splits.held.test.domain == "all"

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
    def test_who_a_client_is_must_be_said_once(self, get, also, problem):
        with pytest.raises(ConfigError, match=problem):
            get(also=distributed("client", **also))

    def test_a_missing_folder_is_an_error(self, get, tmp_path):
        also = distributed("client", data_idx=-1, number=1, domain="art")
        with pytest.raises(DataError, match="nowhere"):
            get("data.root", tmp_path / "nowhere", also=also)
