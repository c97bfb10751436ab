"""The embedding cache: used when it fits, made again when not, and whole always."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from own_process import PATIENCE, until
from pictures import write_images

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    cache,
    embed_data,
    load_data,
    register_encoder,
    register_image_reader,
)
from federatedscope_ggeur.data.images.trees import read_image_folder
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.settings import Key, whole

TYPE = "image_folder@ggeur"
SPLITS = [0.6, 0.0, 0.4]


def embed(tree: Path | str, settings: EncodingSettings):
    return embed_data(TYPE, str(tree), settings)


def features(encoded) -> torch.Tensor:
    return torch.cat([train.features for train, _ in encoded.domains.values()])


def test_the_second_time_nothing_is_extracted(tree, settings):
    first = embed(tree, settings)
    assert (len(first), first.extracted, first.dim) == (30, 30, 48)
    assert list(first.domains) == ["day", "night"]
    second = embed(tree, settings)
    assert second.extracted == 0
    assert torch.equal(features(first), features(second))
    assert second.files == first.files
    assert all(file.is_file() for file in first.files)
    assert second.encoder == first.encoder


def test_a_full_cache_needs_no_encoder_if_it_can_tell(tree, settings):
    built, weights = [], {"weights": "first"}

    def stamp(chosen):
        return dict(weights)

    @register_encoder("counted", stamp=stamp)
    def make(chosen, device):
        built.append(dict(weights))
        return Encoder(
            "counted",
            {"weights": weights["weights"].rstrip("+")},
            1,
            lambda image: torch.tensor([float(image.width)]),
            lambda batch: batch,
        )

    settings = replace(settings, encoder=EncoderSettings("counted"))
    assert embed(tree, settings).extracted == 30
    assert embed(tree, settings).extracted == 0
    assert len(built) == 1
    weights["weights"] = "first+"  # the file was touched
    assert embed(tree, settings).extracted == 0
    assert len(built) == 2
    weights["weights"] = None  # and is not on this machine
    assert embed(tree, settings).extracted == 0
    assert len(built) == 2
    weights["weights"] = "second"
    assert embed(tree, settings).extracted == 30


def test_what_is_out_of_date_is_made_again_and_said(tree, settings, caplog):
    first = embed(tree, settings)
    changed = tree / "day" / "cross" / "001.jpg"
    shutil.copyfile(tree / "night" / "circle" / "000.jpg", changed)
    os.utime(changed, (1_000_000, 1_000_000))  # it shows even within one tick
    second = embed(tree, settings)
    assert second.extracted == 15
    assert "domain 'day' (train)" in caplog.text
    assert "out of date" in caplog.text
    assert "'night'" not in caplog.text
    rows = (features(first) != features(second)).any(dim=1)
    assert rows.nonzero().tolist() == [[6]]
    (tree / "night" / "square" / "000.jpg").unlink()
    assert embed(tree, settings).extracted == 14


def test_settings_that_change_features_have_entries_of_their_own(tree, settings):
    embed(tree, settings)
    larger = replace(settings, encoder=EncoderSettings("pixels", image_size=5))
    assert embed(tree, larger).extracted == 30
    assert embed(tree, larger).dim == 75
    assert embed(tree, settings).extracted == 0
    batches = replace(settings, extraction=ExtractionSettings(batch_size=9))
    assert embed(tree, batches).extracted == 0


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "foreign", "other"])
def test_a_damaged_entry_is_made_again_and_said(tree, settings, caplog, harm):
    first = embed(tree, settings)
    file, other = first.files
    content = file.read_bytes()
    flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    harmed = {"cut": content[:-10], "flip": flipped, "empty": b"", "foreign": b"other"}
    file.write_bytes(harmed.get(harm, other.read_bytes()))
    second = embed(tree, settings)
    assert second.extracted == 15
    assert f"{file} is damaged" in caplog.text
    assert torch.equal(features(first), features(second))
    assert embed(tree, settings).extracted == 0


def test_a_damaged_index_is_only_an_index(tree, settings, caplog):
    embed(tree, settings)
    (record,) = (Path(settings.cache) / "index").iterdir()
    record.write_text(record.read_text()[:-40])
    assert embed(tree, settings).extracted == 0
    assert "is damaged" in caplog.text
    assert json.loads(record.read_text())["name"] == "image_folder"


@pytest.fixture
def interrupted(tree, settings, monkeypatch):
    """Settings of an encoder that was interrupted at the image of a number."""

    def interrupt(number, part_rows):
        seen = []

        def convert(image):
            seen.append(image)
            if len(seen) == number:
                raise KeyboardInterrupt
            return torch.tensor(image.resize((1, 1)).getpixel((0, 0))).float()

        @register_encoder("flaky")
        def make(chosen, device):
            return Encoder("flaky", {}, 3, convert, lambda batch: batch)

        monkeypatch.setattr(cache, "PART_ROWS", part_rows)
        chosen = replace(settings, encoder=EncoderSettings("flaky"))
        with pytest.raises(KeyboardInterrupt):
            embed(tree, chosen)
        return chosen

    return interrupt


@pytest.mark.parametrize("part_rows", [1, 8, 2048])
def test_an_interrupted_extraction_goes_on(tree, interrupted, caplog, part_rows):
    settings = interrupted(11, part_rows)
    caplog.set_level(logging.INFO, "federatedscope_ggeur")
    encoded = embed(tree, settings)
    # Of 11 rows, the batch that was under way and the one that waited are lost.
    assert "4 of 15 images are in the cache" in caplog.text
    assert encoded.extracted == 26
    alone = replace(settings, cache=settings.cache + "_alone")
    assert torch.equal(features(encoded), features(embed(tree, alone)))
    assert not list(Path(settings.cache).rglob("*.parts"))


def test_a_damaged_part_is_made_again(tree, interrupted, caplog):
    settings = interrupted(15, part_rows=1)
    *_, second = sorted(Path(settings.cache).rglob("*.parts/*.safetensors"))
    second.write_bytes(second.read_bytes()[:-1])
    encoded = embed(tree, settings)
    assert "all later rows are made again" in caplog.text
    assert encoded.extracted == 26
    alone = replace(settings, cache=settings.cache + "_alone")
    assert torch.equal(features(encoded), features(embed(tree, alone)))


def test_a_folder_that_cannot_be_written_is_named(tree, settings, tmp_path):
    (tmp_path / "file").write_text("")
    blocked = replace(settings, cache=str(tmp_path / "file" / "cache"))
    for act in (
        lambda: embed(tree, blocked),
        lambda: cache.write_in_cache(tmp_path / "file" / "record", b""),
        lambda: cache.write_in_cache(tmp_path, b""),  # a folder is there
    ):
        with pytest.raises(ConfigError, match=r"cannot write.*set ggeur\.encoder\.cac"):
            act()


def test_the_split_comes_after_the_cache(tree, settings):
    one = load_data(TYPE, str(tree), SPLITS, 1, settings)
    other = load_data(TYPE, str(tree), SPLITS, 2, settings)
    assert [len(domain.train) for domain in one.domains] == [9, 9]
    assert [len(domain.test) for domain in one.domains] == [6, 6]
    rows = [set(map(tuple, d.domains[0].test.features.tolist())) for d in (one, other)]
    assert rows[0] != rows[1]
    assert one.class_names == ("circle", "cross", "square")


def test_embeddings_have_nothing_to_embed():
    with pytest.raises(ConfigError, match="holds embeddings already"):
        embed_data("digits_quickstart@ggeur", "")


# A cache on a machine without images, without weights, or shared by processes.


def carried(settings: EncodingSettings) -> EncodingSettings:
    """The cache moved to another place."""
    there = f"{settings.cache}_elsewhere"
    shutil.move(settings.cache, there)
    return replace(settings, cache=there)


@pytest.mark.parametrize("root", ["", "not/there", "empty"])
def test_it_runs_without_the_images(tree, settings, tmp_path, caplog, root):
    (tmp_path / "empty").mkdir()
    here = embed(tree, settings)
    there = embed(tmp_path / root if root == "empty" else root, carried(settings))
    assert "are used, because there are no images" in caplog.text
    assert there.extracted == 0
    assert (there.encoder, there.class_names) == (here.encoder, here.class_names)
    for name, (train, test) in here.domains.items():
        assert torch.equal(there.domains[name][0].features, train.features)
        assert torch.equal(there.domains[name][0].labels, train.labels)
        assert test is None
        assert there.domains[name][1] is None


def test_it_does_not_stand_for_images_that_have_changed(tree, settings):
    embed(tree, settings)
    (tree / "day" / "cross").rename(tree / "day" / "new")
    with pytest.raises(DataError, match="same classes") as caught:
        embed(tree, settings)
    assert "to run on them, set data.root to a folder that is not" in str(caught.value)


def test_it_keeps_a_split_that_the_data_came_with(tmp_path, settings):
    tree = tmp_path / "tree"
    for split, number in (("train", 4), ("test", 2)):
        made = write_images(tmp_path / split, domains=("day",), per_class=number)
        shutil.copytree(made / "day", tree / "day" / split)
    here = embed(tree, settings)
    there = embed("nowhere", carried(settings))
    assert [len(part) for part in here.domains["day"]] == [12, 6]
    assert [len(part) for part in there.domains["day"]] == [12, 6]


def test_it_runs_without_the_weights(tree, settings, tmp_path, monkeypatch):
    open_clip = pytest.importorskip("open_clip")
    from pictures import add_tiny_clip

    model, weights = add_tiny_clip(tmp_path), tmp_path / "weights.pt"
    torch.save(open_clip.create_model(model).state_dict(), weights)
    encoder = EncoderSettings("open_clip", model, str(weights), quick_gelu="without")
    settings = replace(settings, encoder=encoder)
    here = embed(tree, settings)
    weights.unlink()
    with_images = embed(tree, settings)
    assert with_images.extracted == 0
    assert with_images.encoder == here.encoder
    there = carried(settings)
    elsewhere = replace(encoder, pretrained="/other/place/weights.pt")
    without = embed("nowhere", replace(there, encoder=elsewhere))
    assert without.encoder == here.encoder
    (tree / "day" / "cross" / "001.jpg").unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        embed(tree, settings)


def test_other_settings_do_not_match(tree, settings, caplog):
    embed(tree, settings)
    other = replace(settings, encoder=EncoderSettings("pixels", image_size=5))
    with pytest.raises(DataError, match="nowhere"):
        embed("nowhere", other)
    assert "no features of image_folder@ggeur with these settings" in caplog.text


def test_a_damaged_or_missing_file_is_an_error_without_images(tree, settings):
    first, second = embed(tree, settings).files
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"cannot be used: .*Copy the cache folder"):
        embed("nowhere", settings)
    first.write_bytes(whole)
    second.unlink()
    with pytest.raises(DataError, match="the file is missing"):
        embed("nowhere", settings)


def test_several_data_sets_of_one_type_must_be_told_apart(tmp_path, settings):
    trees = [write_images(tmp_path / name, domains=(name,)) for name in ("one", "two")]
    for tree in trees:
        embed(tree, settings)
        shutil.rmtree(tree)
    assert list(embed(trees[1], settings).domains) == ["two"]
    with pytest.raises(DataError) as caught:
        embed("nowhere", settings)
    assert str(trees[0]) in str(caught.value)
    assert str(trees[1]) in str(caught.value)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_read_only_cache_is_read(tree, settings):
    embed(tree, settings)
    for folder, _, _ in os.walk(settings.cache):
        os.chmod(folder, 0o555)
    try:
        assert embed(tree, settings).extracted == 0
    finally:
        for folder, _, _ in os.walk(settings.cache):
            os.chmod(folder, 0o755)


def test_of_two_at_once_one_embeds_and_one_waits(tree, settings, caplog):
    """Threads as well as processes: each opens the file of the lock anew."""
    caplog.set_level(logging.INFO, "federatedscope_ggeur")
    began, gate = threading.Event(), threading.Event()

    @register_encoder("gated")
    def make(chosen, device):
        def preprocess(image):
            began.set()
            assert gate.wait(PATIENCE)
            return torch.tensor(image.getpixel((0, 0)), dtype=torch.float32)

        return Encoder("gated", {}, 3, preprocess, lambda batch: batch)

    gated = replace(settings, encoder=EncoderSettings("gated"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(embed, tree, gated)
        assert began.wait(PATIENCE)
        second = pool.submit(embed, tree, gated)
        until(lambda: "holds the lock for embedding day (train)" in caplog.text)
        gate.set()
    assert first.result().extracted + second.result().extracted == 30
    assert first.result().extracted >= 15
    assert len(second.result()) == 30


def test_a_reader_that_got_a_setting_finds_what_it_recorded_before(tree, settings):
    """At its default it means what was meant then."""

    def read(root, limit=None):
        return read_image_folder(root)

    register_image_reader("grown")(read)
    here = embed_data("grown@ggeur", str(tree), settings)
    register_image_reader("grown", [Key("limit", 7.0, "Images.", whole(1))])(read)
    there = embed_data("grown@ggeur", "not/there", settings)
    assert there.files == here.files
    with pytest.raises(DataError, match="does not exist"):
        embed_data("grown@ggeur", "not/there", settings, options={"limit": 8})
