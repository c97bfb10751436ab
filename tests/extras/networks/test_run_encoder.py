"""Encoder ``run``: features of a network that a run has trained."""

import json

import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.data.encoders import encoder_stamp
from federatedscope_ggeur.engines.run import Run, load_data_set
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.predictor.predictor import Predictor
from federatedscope_ggeur.reporting import write_run

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


def settings(cache, **others):
    return {
        "federate.method": "ggeur",
        "federate.total_round_num": 5,
        "train.optimizer.momentum": 0.9,
        "train.batch_or_epoch": "epoch",
        "data.type": "bundled_digits@ggeur",
        "data.splits": [0.3, 0.0, 0.7],
        "dataloader.batch_size": 32,
        "ggeur.use": True,
        "ggeur.steps": [],
        "ggeur.encoder.name": "image",
        "ggeur.encoder.image_size": 8,
        "ggeur.encoder.num_workers": 0,
        "ggeur.encoder.cache": cache,
        **others,
    }


@pytest.fixture(scope="module")
def trained(cache, tmp_path_factory):
    """The folder of a short run of a network, and its model."""
    chosen = settings(cache, **{"ggeur.network.name": "digits_cnn"})
    one = Run(load_config(None, chosen))
    results = one.follow(lambda record: None)
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, results, one.history.head_bytes())
    return folder, results.model, chosen


def on_features(trained, cache, **others):
    folder, _, _ = trained
    chosen = settings(
        cache,
        **{"ggeur.encoder.name": "run", "ggeur.encoder.model": str(folder), **others},
    )
    del chosen["ggeur.encoder.image_size"]
    return chosen


@pytest.mark.slow
def test_features_are_what_the_last_layer_takes_in(trained, cache):
    _, model, chosen = trained
    pixels = load_data_set(load_config(None, chosen))
    features = load_data_set(load_config(None, on_features(trained, cache)))
    assert features.dim == 64
    assert features.image_shape is None
    for there, here in zip(pixels.domains, features.domains):
        wanted = model.in_chunks(model.last_input, there.test.features)
        torch.testing.assert_close(here.test.features, wanted, rtol=1e-4, atol=1e-5)
        assert torch.equal(here.test.labels, there.test.labels)


@pytest.mark.slow
def test_predict_embeds_by_it(trained, cache, tmp_path):
    one = Run(load_config(None, on_features(trained, cache)))
    results = one.follow(lambda record: None)
    write_run(tmp_path, results, one.history.head_bytes())
    assert Predictor(tmp_path, trust=True).encoder.name == results.encoder


def test_its_identity_is_its_weights(trained, tmp_path):
    folder, _, _ = trained
    found = build_encoder(EncoderSettings("run", str(folder)), CPU)
    assert found.name == build_encoder(EncoderSettings("run", str(folder)), CPU).name
    assert encoder_stamp(EncoderSettings("run", str(folder)))["weights"]
    assert encoder_stamp(EncoderSettings("run", str(tmp_path)))["weights"] is None


class TestRowsThatTheNetworkSaw:
    """A run says where its test rows may be ones that the network was trained on."""

    def notes(self, trained, cache, **others):
        notes = Run(load_config(None, on_features(trained, cache, **others))).notes
        return [note for note in notes if "may have trained on rows" in note]

    def test_the_same_division_is_as_it_should_be(self, trained, cache):
        assert not self.notes(trained, cache)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("seed", 7),
            ("data.splits", [0.4, 0.0, 0.6]),
            ("ggeur.unseen_domains", ["noisy"]),
        ],
    )
    def test_another_is_said(self, trained, cache, key, value):
        (note,) = self.notes(trained, cache, **{key: value})
        assert f"another {key}, so" in note

    def test_other_data_may_be_divided_at_will(self, trained, cache, tmp_path):
        others = {"seed": 7, "data.root": str(tmp_path)}
        assert not self.notes(trained, cache, **others)


class TestRefusals:
    def test_no_run_s_folder(self, tmp_path):
        with pytest.raises(ConfigError, match=r"encoder\.model: .*is not the folder"):
            build_encoder(EncoderSettings("run", str(tmp_path)), CPU)

    def test_a_run_of_a_head(self, trained, tmp_path):
        folder, _, _ = trained
        results = json.loads((folder / "results.json").read_text())
        results["config"]["ggeur"]["network"]["name"] = ""
        (tmp_path / "results.json").write_text(json.dumps(results))
        head = (folder / "head.safetensors").read_bytes()
        (tmp_path / "head.safetensors").write_bytes(head)
        with pytest.raises(ConfigError, match="trained a head on embeddings"):
            build_encoder(EncoderSettings("run", str(tmp_path)), CPU)

    def test_a_damaged_model(self, trained, tmp_path):
        folder, _, _ = trained
        (tmp_path / "results.json").write_text((folder / "results.json").read_text())
        (tmp_path / "head.safetensors").write_bytes(b"nothing")
        with pytest.raises(
            DataError, match=r"head\.safetensors: the model does not fit"
        ):
            build_encoder(EncoderSettings("run", str(tmp_path)), CPU)

    def test_a_setting_that_it_does_not_take(self):
        with pytest.raises(ConfigError, match="image_size"):
            build_encoder(EncoderSettings("run", "x", image_size=8), CPU)
