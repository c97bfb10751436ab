"""Features of images by batches and worker processes."""

import logging
import os
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from own_process import is_there, until
from pictures import photograph, write_images
from PIL import Image
from torchvision import io, transforms

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    ExtractionSettings,
    build_encoder,
    embed_data,
    extract,
)
from federatedscope_ggeur.data.cache import RecordQuery, record_path
from federatedscope_ggeur.data.decoding import ImagePreparation
from federatedscope_ggeur.data.encoders.frames import frame_of
from federatedscope_ggeur.data.extraction import prepared
from federatedscope_ggeur.data.images import IMAGE_READERS, Images
from federatedscope_ggeur.data.images.files import images_from_files
from federatedscope_ggeur.data.images.trees import read_image_folder
from federatedscope_ggeur.data.processes import ProcessDied, Processes, ahead
from federatedscope_ggeur.errors import ConfigError, DataError, PluginError

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
    listing = replace(encoder, encode=lambda batch: batch.tolist())
    said = r"encode of the encoder x, id \w+ \(.*test_extraction\.py, line \d+\) must "
    with pytest.raises(
        PluginError, match=f"{said}return a Tensor, but returned a list"
    ):
        features(listing, images)


def test_threads_and_the_global_generator_stay_as_they_were(images, pixels):
    torch.manual_seed(3)
    expected, threads = torch.rand(2), torch.get_num_threads()
    torch.manual_seed(3)
    settings = ExtractionSettings(num_workers=1, num_threads=threads + 1)
    features(pixels, images, settings)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.rand(2), expected)


# Images that cannot be loaded, that stand twice, or whose formats are not read.


TYPE = "image_folder@ggeur"


@pytest.fixture
def broken(tree):
    """Files of a tree, cut off; the names of the domain and of all its files."""
    domain = sorted(path for path in tree.iterdir() if path.is_dir())[0]
    files = sorted(domain.glob("*/*"))
    for file in (files[1], files[-1]):
        file.write_bytes(file.read_bytes()[:40])
    keys = [file.relative_to(tree).as_posix() for file in files]
    return domain.name, keys


@pytest.mark.parametrize("workers", [0, 1])
def test_all_are_named_and_counted(tree, settings, broken, workers):
    domain, keys = broken
    extraction = replace(settings.extraction, num_workers=workers)
    settings = replace(settings, extraction=extraction)
    with pytest.raises(DataError) as caught:
        embed_data(TYPE, str(tree), settings)
    first, second, third = str(caught.value).splitlines()
    assert f"{keys[1]}: the file cannot be loaded as an image" in first
    count = f"2 of {len(keys)} images of '{domain}' (train) cannot be loaded: "
    assert second == f"{count}'{keys[1]}', '{keys[-1]}'."
    assert third == "To go on without these images, move them elsewhere"


def test_where_nothing_is_left_it_is_an_error(tree, settings, broken):
    for key in broken[1]:
        (tree / key).write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"cannot be loaded") as caught:
        embed_data(TYPE, str(tree), settings)
    assert "To go on without" not in str(caught.value)


def test_grey_of_12_bits_is_named_and_then_scaled(tmp_path, settings, caplog):
    folder = tmp_path / "scans"
    values = np.arange(8 * 8).reshape(8, 8) * 65  # up to 4,095
    for name, image in {"a": values, "b": values.T}.items():
        for split in ("train", "test"):
            path = folder / "x" / split / name / "0.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(image.astype(np.uint16)).save(path)

    def largest(bits: int) -> int:
        encoder = EncoderSettings("pixels", image_size=8, grey_bits=bits)
        chosen = replace(settings, encoder=encoder)
        data = embed_data(TYPE, str(folder), chosen)
        return round(255 * float(data.domains["x"][0].features.max()))

    assert largest(16) == 15
    assert "is 4095, so they are nearly black" in caplog.text
    assert "set ggeur.encoder.grey_bits 12" in caplog.text
    caplog.clear()
    assert largest(12) == 255
    assert "nearly black" not in caplog.text


def test_images_of_other_formats_are_counted(tree, caplog):
    domain, *_ = sorted(path for path in tree.iterdir() if path.is_dir())
    one, other, *_ = sorted(domain.iterdir())
    names = one / "a.heic", one / "b.HEIC", other / "c.avif", other / "d.dcm"
    for path in names:
        path.write_bytes(b"pixels")
    (one / "notes.txt").write_text("no image")
    caplog.set_level(logging.WARNING)
    read_image_folder(tree)
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.startswith(
        f"{domain}: 4 images are ignored, because their formats are not"
    )
    assert "(1 .avif, 1 .dcm, 2 .heic)" in line


def test_where_there_is_no_cache_nothing_is_said_of_one(settings, caplog):
    with pytest.raises(DataError) as caught:
        embed_data(TYPE, "nowhere", settings)
    assert "cache" not in f"{caught.value} {caplog.text}"


# Processes that stay, and a thread that runs ahead.


def squared(number):
    return number**2


def with_pid(offset, number):
    return os.getpid(), np.full(3, number + offset)


def late(number):
    time.sleep(0.05 * (number == 0))
    return number


def dies(number):
    if number == 3:
        os._exit(9)
    return number


def test_results_come_in_the_order_of_the_tasks():
    with Processes() as processes:
        assert list(processes.run(late, range(20), 2)) == list(range(20))
        assert list(processes.run(squared, range(5), 2)) == [0, 1, 4, 9, 16]
        assert list(processes.run(squared, [], 2)) == []


def test_processes_stay_from_run_to_run():
    with Processes() as processes:
        seen = []
        for offset in (0, 10):
            found = list(processes.run(partial(with_pid, offset), range(8), 2))
            seen.append({pid for pid, _ in found})
            numbers = np.stack([array for _, array in found])
            assert (numbers == np.arange(8)[:, None] + offset).all()
        assert seen[0] == seen[1]
        assert len(seen[0]) == 2
        assert os.getpid() not in seen[0]
    assert not any(map(is_there, seen[0]))


def test_what_cannot_be_sent_is_inherited_by_others():
    secret = threading.Lock()  # no pickle holds it

    def closure(number):
        return os.getpid(), number, secret.locked()

    with Processes() as processes:
        first = {pid for pid, _ in processes.run(partial(with_pid, 0), range(4), 1)}
        found = list(processes.run(closure, range(4), 1))
        assert [(n, locked) for _, n, locked in found] == [(n, False) for n in range(4)]
        assert not first & {pid for pid, *_ in found}


def test_a_death_is_told_and_others_can_start():
    with Processes() as processes:
        with pytest.raises(ProcessDied):
            list(processes.run(dies, range(9), 2))
        assert list(processes.run(squared, range(3), 2)) == [0, 1, 4]


def test_a_run_that_is_not_finished_leaves_nothing_behind():
    with Processes() as processes:
        results = processes.run(squared, range(100), 2)
        assert list(islice(results, 2)) == [0, 1]
        results.close()
        assert list(processes.run(squared, [7], 2)) == [49]


def test_a_thread_runs_ahead_but_not_far():
    made = []

    def items():
        for number in count():
            made.append(number)
            yield number

    found = ahead(items(), 2)
    assert next(found) == 0
    until(lambda: len(made) >= 4)
    time.sleep(0.01)
    assert made == [0, 1, 2, 3]  # one used, two ready, one that waits for room
    found.close()
    assert threading.active_count() == 1 or len(made) == 4


def test_errors_of_the_thread_are_raised_where_its_items_are_used():
    def items():
        yield 1
        raise KeyError("x")

    found = ahead(items(), 2)
    assert next(found) == 1
    with pytest.raises(KeyError):
        next(found)


def test_closing_closes_what_the_thread_reads():
    closed = []

    def items():
        try:
            yield from count()
        finally:
            closed.append(threading.current_thread().name)

    found = ahead(items(), 1)
    next(found)
    found.close()
    assert closed
    assert closed != [threading.current_thread().name]


# The three ways to decode, beside each other: pillow, draft, gpu (here on the CPU).


BICUBIC = transforms.InterpolationMode.BICUBIC
WAYS = ("pillow", "draft", "gpu")
OTHERS = ("draft", "gpu")


def encoder_of(decode) -> Encoder:
    """Gives the pixels that a model would see."""
    small = transforms.Resize(24, BICUBIC), transforms.CenterCrop(24)
    rest = transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)
    frame = frame_of(transforms.Compose([*small, *rest]))
    settings = {"device": CPU, "frame": frame, "decode": decode}

    def encode(batch):
        return batch.flatten(1).float()

    return Encoder("x", {}, 3 * 24 * 24, frame.shape, encode, **settings)


def photographs(folder, sizes) -> tuple[Images, list[Path]]:
    """Of these sizes, and their files."""
    paths = [folder / f"{k}.jpg" for k in range(len(sizes))]
    for k, (path, size) in enumerate(zip(paths, sizes)):
        photograph(*size, seed=k).save(path)
    return images_from_files(folder, [*map(str, paths)], [0] * len(paths)), paths


def pixels_by(path, decode):
    images = images_from_files(Path(path).parent, [str(path)], [0])
    (batch,) = prepared(encoder_of(decode), images, HERE)
    return batch[0].float()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(160, 120), (120, 161), (400, 300)])
def test_photographs_move_by_a_few_grey_levels(tmp_path, size, mode):
    path = tmp_path / "a.jpg"
    photograph(*size).convert(mode).save(path, quality=90)
    by_pillow = pixels_by(path, "pillow")
    for decode in OTHERS:
        apart = (pixels_by(path, decode) - by_pillow).abs()
        assert apart.mean() < 1.5
        assert apart.max() < 20


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
    assert torch.equal(pixels_by(path, decode), pixels_by(path, "pillow"))


def test_a_turned_photograph_is_pillow_s_or_a_turned_draft(tmp_path):
    path, exif = tmp_path / "a.jpg", Image.Exif()
    exif[0x0112] = 6
    photograph().save(path, exif=exif)
    by_pillow = pixels_by(path, "pillow")
    assert torch.equal(pixels_by(path, "gpu"), by_pillow)
    assert (pixels_by(path, "draft") - by_pillow).abs().mean() < 1.5


def test_a_draft_is_never_smaller_than_what_is_needed(tmp_path):
    path = tmp_path / "a.jpg"
    photograph(47, 47).save(path)  # half of it would be one pixel short
    assert torch.equal(pixels_by(path, "draft"), pixels_by(path, "pillow"))


@pytest.mark.parametrize("decode", WAYS)
def test_a_file_that_ends_too_early_is_named(tmp_path, decode):
    images, (path,) = photographs(tmp_path, [(160, 120)])
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match=r"0\.jpg: the file cannot be loaded"):
        list(extract(encoder_of(decode), images, HERE))


def test_what_torchvision_cannot_decode_is_pillow_s(tmp_path, monkeypatch):
    """It fails for a whole batch because of one file."""
    images, paths = photographs(tmp_path, [(160, 120)] * 3)
    whole = torch.cat([*extract(encoder_of("gpu"), images, HERE)])
    odd, decode = len(paths[1].read_bytes()), io.decode_jpeg

    def picky(files, *args, **options):
        if any(len(file) == odd for file in files):
            raise RuntimeError("no")
        return decode(files, *args, **options)

    monkeypatch.setattr(io, "decode_jpeg", picky)
    found = torch.cat([*extract(encoder_of("gpu"), images, HERE)])
    assert torch.equal(found[[0, 2]], whole[[0, 2]])
    assert torch.equal(found[1], pixels_by(paths[1], "pillow").flatten())


@pytest.mark.parametrize("decode", WAYS)
def test_processes_batches_and_sizes_change_nothing(tmp_path, decode, monkeypatch):
    sizes = [(160, 120), (100, 130), (160, 120), (80, 81), (160, 120)]
    images, paths = photographs(tmp_path, sizes)
    encoder = encoder_of(decode)
    wanted = torch.stack([pixels_by(path, decode).flatten() for path in paths])
    for settings in (HERE, replace(HERE, num_workers=2, batch_size=3)):
        assert torch.equal(torch.cat([*extract(encoder, images, settings)]), wanted)
    for limit in ("_MOST_BYTES", "_MOST_PIXELS"):  # large photographs go one by one
        monkeypatch.setattr(f"{ImagePreparation.__module__}.{limit}", 1)
        assert torch.equal(torch.cat([*extract(encoder, images, HERE)]), wanted)


def test_images_that_share_a_file_are_pillow_s(images):
    load = images.load.__call__  # has no path
    for decode in OTHERS:
        found = ImagePreparation.of(encoder_of(decode))(load, 1)
        assert torch.equal(found, encoder_of("pillow").preprocess(images.load(1)))


SETTINGS = EncoderSettings("timm", "test_vit", "none")


@pytest.mark.slow
def test_each_way_has_an_identity_of_its_own_and_pillow_that_of_before():
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
