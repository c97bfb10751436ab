"""Encoder ``run``: features of a network that a run has trained."""

import json

import numpy as np
import pytest
import torch
from pictures import CLASSES, write_images
from PIL import Image

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    build_encoder,
    embed_data,
    load_data,
    partition,
)
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


# The encoder image: pixels as they are, a byte each.


def row_of(image, size=None, grey=False):
    encoder = build_encoder(EncoderSettings("image", image_size=size), CPU, grey)
    found = encoder.encode(encoder.preprocess(image)[None])[0]
    assert (found.dtype, encoder.dtype) == (torch.uint8, torch.uint8)
    assert len(found) == encoder.dim
    return found.reshape(encoder.image_shape)


def pixel_settings(cache, size=8, **more):
    return EncodingSettings(
        EncoderSettings("image", image_size=size),
        ExtractionSettings(4, 0, 1),
        "cpu",
        str(cache),
        **more,
    )


def test_an_image_of_the_size_asked_for_is_kept_to_the_bit():
    values = np.arange(5 * 5 * 3, dtype=np.uint8).reshape(5, 5, 3)
    found = row_of(Image.fromarray(values), 5)
    assert torch.equal(found, torch.from_numpy(values).permute(2, 0, 1))


def test_a_grey_data_set_keeps_one_channel():
    values = np.arange(36, dtype=np.uint8).reshape(6, 6) * 7
    image = Image.fromarray(values).convert("RGB")
    assert torch.equal(row_of(image, 6, grey=True)[0], torch.from_numpy(values))
    assert row_of(image, 6).shape == (3, 6, 6)


def test_making_smaller_averages_over_all_pixels():
    """Two by two of a chessboard: a point of each square alone would be 0 or 255."""
    board = np.indices((64, 64)).sum(axis=0) % 2 * 255
    image = Image.fromarray(board.astype(np.uint8)).convert("RGB")
    found = row_of(image, 2).int()
    assert ((found - 128).abs() <= 4).all()


def test_the_default_side_is_32():
    assert row_of(Image.new("RGB", (50, 20))).shape == (3, 32, 32)


def test_identity_tells_size_and_colours():
    made = [
        build_encoder(EncoderSettings("image", image_size=size), CPU, grey).name
        for size in (8, 16)
        for grey in (False, True)
    ]
    assert len(set(made)) == 4


def test_bytes_go_through_the_cache(tmp_path):
    tree = str(write_images(tmp_path / "tree"))
    first, again = (
        embed_data("image_folder@ggeur", tree, pixel_settings(tmp_path / "cache"))
        for _ in range(2)
    )
    assert (first.extracted, again.extracted) == (30, 0)
    rows = again.domains["day"][0]
    assert rows.image_shape == (3, 8, 8)
    assert torch.equal(rows.features, first.domains["day"][0].features)
    path = tmp_path / "tree" / "day" / CLASSES[1] / "002.jpg"
    image = Image.open(path).convert("RGB").resize((8, 8), Image.BILINEAR)
    expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    assert torch.equal(rows.features[7].reshape(3, 8, 8), expected)
    stored = sum(file.stat().st_size for file in again.files)
    assert stored < 30 * (3 * 8 * 8 + 8) + 2 * 1000  # a byte a value, and labels


def test_an_interrupted_one_goes_on_with_the_same_bytes(tmp_path):
    tree = write_images(tmp_path / "tree")
    whole = embed_data(
        "image_folder@ggeur", str(tree), pixel_settings(tmp_path / "whole")
    )
    broken = tree / "night" / CLASSES[2] / "004.jpg"
    kept = broken.read_bytes()
    broken.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"004\.jpg"):
        embed_data("image_folder@ggeur", str(tree), pixel_settings(tmp_path / "cache"))
    broken.write_bytes(kept)
    found = embed_data(
        "image_folder@ggeur", str(tree), pixel_settings(tmp_path / "cache")
    )
    for name, (rows, _) in found.domains.items():
        assert torch.equal(rows.features, whole.domains[name][0].features)


@pytest.mark.slow
def test_clients_hold_pixels_of_the_bundled_digits(tmp_path):
    data = load_data(
        "bundled_digits@ggeur",
        "",
        [0.6, 0.1, 0.3],
        0,
        pixel_settings(tmp_path / "cache"),
    )
    assert data.image_shape == (1, 8, 8)
    found = partition(
        data,
        client_num=8,
        splitter="lda",
        splitter_args=[{"alpha": 0.3}],
        seed=0,
        validation=0.1,
    )
    assert found.image_shape == (1, 8, 8)
    for client in found.clients:
        for rows in (client.train, client.val, client.test):
            assert rows.image_shape == (1, 8, 8)
            assert rows.features.dtype == torch.uint8
    assert sum(len(c.train) + len(c.val) + len(c.test) for c in found.clients) == 1797


@pytest.mark.parametrize("field", ["normalize", "precision"])
def test_settings_of_models_are_refused(field):
    value = True if field == "normalize" else "bf16"
    with pytest.raises(ConfigError, match=rf"ggeur\.encoder\.{field}: the encoder"):
        build_encoder(EncoderSettings("image", **{field: value}), CPU)


def test_half_precision_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"float16_cache: leave .* 'image' keeps"):
        load_data(
            "bundled_digits@ggeur",
            "",
            [0.7, 0.0, 0.3],
            0,
            pixel_settings(tmp_path, float16=True),
        )
