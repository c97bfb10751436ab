"""Images that cannot be loaded, that stand twice, or whose formats are not read."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import write_images
from PIL import Image

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    embed_data,
)
from federatedscope_ggeur.data.extraction import in_several_classes, select
from federatedscope_ggeur.data.images.folder import read_image_folder
from federatedscope_ggeur.data.registry import find_pending
from federatedscope_ggeur.errors import DataError

TYPE = "image_folder@ggeur"


@pytest.fixture
def tree(tmp_path):
    return write_images(tmp_path / "tree")


@pytest.fixture(params=[False, True], ids=["by stamps", "by contents"])
def settings(tmp_path, request):
    return EncodingSettings(
        EncoderSettings("pixels", image_size=4),
        ExtractionSettings(batch_size=4, num_workers=0, num_threads=1),
        device="cpu",
        cache=str(tmp_path / "cache"),
        hash_files=request.param,
    )


@pytest.fixture
def broken(tree):
    """Files of a tree, cut off; the names of the domain and of all its files."""
    domain = sorted(path for path in tree.iterdir() if path.is_dir())[0]
    files = sorted(domain.glob("*/*"))
    for file in (files[1], files[-1]):
        file.write_bytes(file.read_bytes()[:40])
    keys = [file.relative_to(tree).as_posix() for file in files]
    return domain.name, keys


def test_all_are_named_and_counted(tree, settings, broken):
    domain, keys = broken
    with pytest.raises(DataError) as caught:
        embed_data(TYPE, str(tree), settings)
    first, second, third = str(caught.value).splitlines()
    assert f"{keys[1]}: the file cannot be loaded as an image" in first
    count = f"2 of {len(keys)} images of '{domain}' (train) cannot be loaded: "
    assert second == f"{count}'{keys[1]}', '{keys[-1]}'."
    assert (
        third == "To go on without these images, set ggeur.encoder.skip_unreadable True"
    )


def test_without_them_it_goes_on(tree, settings, broken, caplog):
    domain, keys = broken
    settings = replace(settings, skip_unreadable=True)
    found = embed_data(TYPE, str(tree), settings)
    assert f"2 of {len(keys)} images of '{domain}' (train) cannot be" in caplog.text
    for key in (keys[1], keys[-1]):
        (tree / key).unlink()
    shutil.rmtree(settings.cache)
    whole = embed_data(TYPE, str(tree), settings)
    for name, (rows, _) in whole.domains.items():
        assert torch.equal(found.domains[name][0].features, rows.features)
        assert torch.equal(found.domains[name][0].labels, rows.labels)


def test_the_cache_knows_them(tree, settings, broken):
    settings = replace(settings, skip_unreadable=True)
    first = embed_data(TYPE, str(tree), settings)
    assert find_pending(TYPE, str(tree), settings) is None
    again = embed_data(TYPE, str(tree), settings)
    assert (first.extracted, again.extracted) == (len(first), 0)
    with pytest.raises(DataError, match="2 of"):
        embed_data(TYPE, str(tree), replace(settings, skip_unreadable=False))


def test_a_file_that_is_mended_is_taken_again(tree, settings, broken):
    settings = replace(settings, skip_unreadable=True)
    first = embed_data(TYPE, str(tree), settings)
    shutil.copy(tree / broken[1][0], tree / broken[1][1])
    assert len(embed_data(TYPE, str(tree), settings)) == len(first) + 1


def test_where_nothing_is_left_it_is_an_error(tree, settings, broken):
    for key in broken[1]:
        (tree / key).write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"cannot be loaded") as caught:
        embed_data(TYPE, str(tree), replace(settings, skip_unreadable=True))
    assert "To go on without" not in str(caught.value)


def test_some_of_the_images(tree):
    images = read_image_folder(tree).domains[0].train
    some = select(images, np.array([0, 3]))
    assert some.keys == (images.keys[0], images.keys[3])
    assert some.paths == (images.paths[0], images.paths[3])
    assert some.labels.tolist() == images.labels[[0, 3]].tolist()
    assert some.load(1).tobytes() == images.load(3).tobytes()


def test_the_same_file_in_two_classes_is_counted(tree, settings, caplog):
    domain, *_ = sorted(path for path in tree.iterdir() if path.is_dir())
    one, other, *_ = sorted(domain.iterdir())
    first, second = sorted(one.iterdir())[:2]
    shutil.copy(first, one / f"again{first.suffix}")  # of one class: nobody's mistake
    shutil.copy(second, other / f"twice{second.suffix}")
    groups = in_several_classes(read_image_folder(tree).domains[0].train)
    pair = f"{one}/{second.name}", f"{other}/twice{second.suffix}"
    assert groups == [[path[len(str(tree)) + 1 :] for path in pair]]
    for _ in range(2):  # said while images are embedded, and not by a full cache
        embed_data(TYPE, str(tree), settings)
        said = caplog.text
        caplog.clear()
        if "embedding" in said or "files are" in said:
            assert f"{domain.name} (train): 2 files are equal to a file of" in said
    assert "files are equal" not in said


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
    for path in (one / "a.heic", one / "b.HEIC", other / "c.avif", other / "d.jfif"):
        path.write_bytes(b"pixels")
    (one / "notes.txt").write_text("no image")
    caplog.set_level(logging.WARNING)
    read_image_folder(tree)
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.startswith(
        f"{domain}: 4 images are ignored, because their formats are not"
    )
    assert "(1 .avif, 2 .heic, 1 .jfif)" in line


def test_where_there_is_no_cache_nothing_is_said_of_one(settings, caplog):
    with pytest.raises(DataError) as caught:
        embed_data(TYPE, "nowhere", settings)
    assert "cache" not in f"{caught.value} {caplog.text}"
