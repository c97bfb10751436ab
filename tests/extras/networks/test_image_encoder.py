"""The encoder image: pixels as they are, a byte each."""

import numpy as np
import pytest
import torch
from pictures import CLASSES, write_images
from PIL import Image

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    build_encoder,
    embed_data,
    load_data,
    partition,
)
from federatedscope_ggeur.errors import ConfigError, DataError

CPU = torch.device("cpu")


def row_of(image, size=None, grey=False):
    encoder = build_encoder(EncoderSettings("image", image_size=size), CPU, grey)
    found = encoder.encode(encoder.preprocess(image)[None])[0]
    assert (found.dtype, encoder.dtype) == (torch.uint8, torch.uint8)
    assert len(found) == encoder.dim
    return found.reshape(encoder.image_shape)


def settings(cache, size=8, **more):
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
        embed_data("image_folder@ggeur", tree, settings(tmp_path / "cache"))
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
    whole = embed_data("image_folder@ggeur", str(tree), settings(tmp_path / "whole"))
    broken = tree / "night" / CLASSES[2] / "004.jpg"
    kept = broken.read_bytes()
    broken.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"004\.jpg"):
        embed_data("image_folder@ggeur", str(tree), settings(tmp_path / "cache"))
    broken.write_bytes(kept)
    found = embed_data("image_folder@ggeur", str(tree), settings(tmp_path / "cache"))
    for name, (rows, _) in found.domains.items():
        assert torch.equal(rows.features, whole.domains[name][0].features)


@pytest.mark.slow
def test_clients_hold_pixels_of_the_bundled_digits(tmp_path):
    data = load_data(
        "bundled_digits@ggeur", "", [0.6, 0.1, 0.3], 0, settings(tmp_path / "cache")
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
            settings(tmp_path, float16=True),
        )
