"""The three ways to decode, beside each other: pillow, draft, gpu (here on the CPU)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pictures import photograph, write_images
from PIL import Image

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    ExtractionSettings,
    build_encoder,
    extract,
)
from federatedscope_ggeur.data.cache import RecordQuery, record_path
from federatedscope_ggeur.data.decoding import ImagePreparation
from federatedscope_ggeur.data.extraction import prepared
from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.files import images_from_files
from federatedscope_ggeur.errors import ConfigError, DataError

transforms = pytest.importorskip("torchvision.transforms")
frame_of = pytest.importorskip("federatedscope_ggeur.data.encoders.frames").frame_of

CPU = torch.device("cpu")
HERE = ExtractionSettings(batch_size=4, num_workers=0, num_threads=1)
WAYS = ("pillow", "draft", "gpu")
OTHERS = ("draft", "gpu")


def encoder_of(decode, device=CPU) -> Encoder:
    """Gives the pixels that a model would see."""
    frame = frame_of(
        transforms.Compose(
            [
                transforms.Resize(24, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(24),
                transforms.ToTensor(),
                transforms.Normalize((0.5,) * 3, (0.5,) * 3),
            ]
        )
    )

    def encode(batch):
        return batch.flatten(1).float()

    dim = 3 * 24 * 24
    return Encoder(
        "x", {}, dim, frame.shape, encode, device, frame=frame, decode=decode
    )


def pixels(path, decode):
    images = images_from_files(Path(path).parent, [str(path)], [0])
    (batch,) = prepared(encoder_of(decode), images, HERE)
    return batch[0].float()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(160, 120), (120, 161), (400, 300)])
def test_photographs_move_by_a_few_grey_levels(tmp_path, size, mode):
    path = tmp_path / "a.jpg"
    photograph(*size).convert(mode).save(path, quality=90)
    by_pillow = pixels(path, "pillow")
    for decode in OTHERS:
        apart = (pixels(path, decode) - by_pillow).abs()
        assert apart.mean() < 1.5
        assert apart.max() < 20


def turned(path):
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph().save(path, "JPEG", exif=exif)


#: What is no plain JPEG, whatever its name; JPEGs that are too small for a draft, too.
NOT_PLAIN = {
    "png": lambda path: photograph().save(path, "PNG"),
    "grey with alpha": lambda path: photograph().convert("LA").save(path, "PNG"),
    "CMYK": lambda path: photograph(30, 30).convert("CMYK").save(path, "JPEG"),
}


@pytest.mark.parametrize("write", NOT_PLAIN.values(), ids=NOT_PLAIN)
@pytest.mark.parametrize("decode", OTHERS)
def test_what_is_no_plain_jpeg_is_pillow_s(tmp_path, write, decode):
    path = tmp_path / "a.jpg"
    write(path)
    assert torch.equal(pixels(path, decode), pixels(path, "pillow"))


def test_a_turned_photograph_is_pillow_s_or_a_turned_draft(tmp_path):
    path = tmp_path / "a.jpg"
    turned(path)
    by_pillow = pixels(path, "pillow")
    assert torch.equal(pixels(path, "gpu"), by_pillow)
    assert (pixels(path, "draft") - by_pillow).abs().mean() < 1.5


def test_a_draft_is_never_smaller_than_what_is_needed(tmp_path):
    path = tmp_path / "a.jpg"
    photograph(47, 47).save(path)  # half of it would be one pixel short
    assert torch.equal(pixels(path, "draft"), pixels(path, "pillow"))


@pytest.mark.parametrize("decode", WAYS)
def test_a_file_that_ends_too_early_is_named(tmp_path, decode):
    path = tmp_path / "a.jpg"
    photograph().save(path)
    path.write_bytes(path.read_bytes()[:-500])
    images = images_from_files(tmp_path, [str(path)], [0])
    with pytest.raises(DataError, match=r"a\.jpg: the file cannot be loaded"):
        list(extract(encoder_of(decode), images, HERE))


def test_what_torchvision_cannot_decode_is_pillow_s(tmp_path, monkeypatch):
    """It fails for a whole batch because of one file."""
    from torchvision import io

    paths = [tmp_path / f"{k}.jpg" for k in range(3)]
    for k, path in enumerate(paths):
        photograph(seed=k).save(path)
    images = images_from_files(tmp_path, [*map(str, paths)], [0, 0, 0])
    whole = torch.cat([*extract(encoder_of("gpu"), images, HERE)])
    odd, decode = len(paths[1].read_bytes()), io.decode_jpeg

    def picky(files, *args, **options):
        if any(len(file) == odd for file in files):
            raise RuntimeError("no")
        return decode(files, *args, **options)

    monkeypatch.setattr(io, "decode_jpeg", picky)
    found = torch.cat([*extract(encoder_of("gpu"), images, HERE)])
    assert torch.equal(found[[0, 2]], whole[[0, 2]])
    assert torch.equal(found[1], pixels(paths[1], "pillow").flatten())


@pytest.mark.parametrize("decode", WAYS)
def test_processes_batches_and_sizes_change_nothing(tmp_path, decode, monkeypatch):
    sizes = [(160, 120), (100, 130), (160, 120), (80, 81), (160, 120)]
    paths = []
    for k, size in enumerate(sizes):
        paths.append(str(tmp_path / f"{k}.jpg"))
        photograph(*size, seed=k).save(paths[-1])
    images = images_from_files(tmp_path, paths, [0] * len(paths))
    encoder = encoder_of(decode)
    wanted = torch.stack([pixels(path, decode).flatten() for path in paths])
    for settings in (HERE, replace(HERE, num_workers=2, batch_size=3)):
        assert torch.equal(torch.cat([*extract(encoder, images, settings)]), wanted)
    for limit in ("_MOST_BYTES", "_MOST_PIXELS"):  # large photographs go one by one
        monkeypatch.setattr(f"{ImagePreparation.__module__}.{limit}", 1)
        assert torch.equal(torch.cat([*extract(encoder, images, HERE)]), wanted)


def test_images_that_share_a_file_are_pillow_s(tmp_path):
    tree = write_images(tmp_path / "tree", domains=("day",))
    images = IMAGE_READERS["image_folder"](str(tree)).domains[0].train
    load = images.load.__call__  # has no path
    for decode in OTHERS:
        found = ImagePreparation.of(encoder_of(decode))(load, 1)
        assert torch.equal(found, encoder_of("pillow").preprocess(images.load(1)))


SETTINGS = EncoderSettings("timm", "test_vit", "none")


@pytest.mark.slow
def test_each_way_has_an_identity_of_its_own_and_pillow_that_of_before():
    pytest.importorskip("timm")
    found = [build_encoder(replace(SETTINGS, decode=way), CPU) for way in WAYS]
    assert "decode" not in found[0].identity
    assert [one.identity["decode"] for one in found[1:]] == list(OTHERS)
    assert len({one.name for one in found}) == len(WAYS)


def test_caches_from_before_are_found():
    def request(**changed):
        return RecordQuery("x@ggeur", "r", replace(SETTINGS, **changed))

    assert "decode" not in request().without_root()["encoder"]
    paths = {record_path(Path("c"), request(decode=way)) for way in WAYS}
    assert len(paths) == len(WAYS)


def test_encoders_that_make_images_small_themselves_take_pillow_alone():
    with pytest.raises(ConfigError, match=r"encoder\.decode: the encoder 'hog' does"):
        build_encoder(EncoderSettings("hog", decode="draft"), CPU)
