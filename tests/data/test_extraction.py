"""Features of images by batches and worker processes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import write_images
from PIL import Image

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    ExtractionSettings,
    build_encoder,
    extract,
)
from federatedscope_ggeur.data.extraction import hash_contents, select
from federatedscope_ggeur.data.images import IMAGE_READERS, Images
from federatedscope_ggeur.data.processes import Processes
from federatedscope_ggeur.errors import ConfigError, DataError

CPU = torch.device("cpu")
HERE = ExtractionSettings(batch_size=4, num_workers=0, num_threads=1)


@pytest.fixture
def images(tmp_path) -> Images:
    tree = write_images(tmp_path / "tree", domains=("day",))
    return IMAGE_READERS["image_folder"](str(tree)).domains[0].train


@pytest.fixture
def pixels() -> Encoder:
    return build_encoder(EncoderSettings("pixels", image_size=8), CPU)


def features(encoder, images, settings=HERE, first=0) -> torch.Tensor:
    return torch.cat(list(extract(encoder, images, settings, first)))


def test_rows_keep_their_order_and_batches_their_size(images, pixels):
    batches = list(extract(pixels, images, HERE))
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]
    expected = torch.stack(
        [pixels.preprocess(images.load(row)) for row in range(len(images))]
    )
    assert torch.equal(torch.cat(batches), expected)
    assert torch.equal(features(pixels, images, first=8), expected[8:])


@pytest.mark.slow
def test_workers_batches_and_starts_change_nothing_but_rounding(images):
    pytest.importorskip("timm")
    encoder = build_encoder(EncoderSettings("timm", "test_vit", "none"), CPU)
    expected = features(encoder, images)
    workers = ExtractionSettings(batch_size=4, num_workers=2, num_threads=1)
    assert torch.equal(features(encoder, images, workers), expected)
    assert torch.equal(features(encoder, images, HERE, first=8), expected[8:])
    larger = ExtractionSettings(batch_size=7, num_workers=1, num_threads=2)
    assert torch.allclose(features(encoder, images, larger), expected, atol=1e-5)


def test_images_are_decoded_by_other_processes(images, pixels):
    def load(row: int) -> Image.Image:
        return Image.new("RGB", (8, 8), tuple(os.getpid().to_bytes(3, "big")))

    def by_whom(settings: ExtractionSettings) -> set[int]:
        colours = (features(pixels, held, settings)[:, :3] * 255).round().int()
        return {int.from_bytes(bytes(row), "big") for row in colours.tolist()}

    held = Images(images.labels, images.keys, images.stamps, load)
    others = by_whom(ExtractionSettings(batch_size=1, num_workers=2))
    assert len(others) == 2
    assert os.getpid() not in others
    assert by_whom(HERE) == {os.getpid()}


class OfProcess:
    """Loads images whose colour is the number of the process."""

    def __call__(self, row: int) -> Image.Image:
        return Image.new("RGB", (8, 8), tuple(os.getpid().to_bytes(3, "big")))


def test_processes_stay_for_the_next_images(images, pixels):
    held = Images(images.labels, images.keys, images.stamps, OfProcess())
    settings = ExtractionSettings(batch_size=1, num_workers=2)
    with Processes() as processes:
        first, second = (
            {
                tuple(row)
                for batch in extract(pixels, part, settings, 0, processes)
                for row in batch[:, :3].tolist()
            }
            for part in (held, select(held, np.arange(9)))
        )
    assert len(first) == 2
    assert first == second


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_named_plainly(images, pixels, tmp_path, workers):
    broken = tmp_path / "tree" / images.keys[6]
    broken.write_bytes(broken.read_bytes()[:300])
    settings = ExtractionSettings(batch_size=4, num_workers=workers)
    with pytest.raises(DataError) as caught:
        features(pixels, images, settings)
    assert str(broken) in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_loader_that_fails_otherwise_names_the_key(images, pixels):
    def load(row: int):
        raise ZeroDivisionError("row")

    held = Images(images.labels, images.keys, images.stamps, load)
    with pytest.raises(DataError, match=f"'{images.keys[0]}': ZeroDivisionError: row"):
        features(pixels, held)


def test_a_dead_worker_is_explained(images, pixels):
    def load(row: int):
        os._exit(9)

    held = Images(images.labels, images.keys, images.stamps, load)
    with pytest.raises(ConfigError, match=r"died .* ggeur\.encoder\.num_workers 0"):
        features(pixels, held, ExtractionSettings(num_workers=1))


def test_features_that_are_not_finite_name_the_image(images, pixels):
    def encode(batch):
        return torch.where(torch.arange(len(batch))[:, None] == 2, torch.inf, batch)

    encoder = Encoder("x", {"encoder": "x"}, pixels.dim, pixels.preprocess, encode)
    with pytest.raises(DataError, match=f"'{images.keys[2]}' are not finite"):
        features(encoder, images)


def test_an_encoder_must_give_what_it_says(images, pixels):
    encoder = Encoder("x", {"encoder": "x"}, 5, pixels.preprocess, pixels.encode)
    with pytest.raises(ConfigError, match=r"shape \[4, 192\], but must .* \[B, 5\]"):
        features(encoder, images)


def test_threads_and_the_global_generator_stay_as_they_were(images, pixels):
    torch.manual_seed(3)
    expected, threads = torch.rand(2), torch.get_num_threads()
    torch.manual_seed(3)
    settings = ExtractionSettings(num_workers=1, num_threads=threads + 1)
    features(pixels, images, settings)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.rand(2), expected)


def test_hashes_follow_contents_and_not_files(images, tmp_path):
    before = hash_contents(images, HERE)
    assert len(set(before)) == len(images)
    path = Path(tmp_path / "tree" / images.keys[0])
    os.utime(path, (1, 1))
    assert hash_contents(images, HERE) == before
    Image.fromarray(np.zeros((40, 48, 3), np.uint8)).save(path)
    after = hash_contents(images, HERE)
    assert after[0] != before[0]
    assert after[1:] == before[1:]
