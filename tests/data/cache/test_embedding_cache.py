"""The embedding cache: used when it fits, made again when not, and whole always."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    cache,
    embed_data,
    load_data,
    register_encoder,
)
from federatedscope_ggeur.data.encoders import ENCODERS
from federatedscope_ggeur.errors import ConfigError

TYPE = "image_folder@ggeur"
SPLITS = [0.6, 0.0, 0.4]


def embed(tree: Path, settings: EncodingSettings):
    return embed_data(TYPE, str(tree), settings)


def features(encoded) -> torch.Tensor:
    return torch.cat([train.features for train, _ in encoded.domains.values()])


def make_old(path: Path) -> None:
    """Another time, so that a changed file shows even within one tick."""
    os.utime(path, (1_000_000, 1_000_000))


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


def test_a_full_cache_needs_no_encoder_if_it_can_tell(tree, settings, monkeypatch):
    monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))
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
    make_old(changed)
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
    content = bytearray(file.read_bytes())
    if harm == "cut":
        content = content[:-10]
    elif harm == "flip":
        content[-100] ^= 1
    elif harm == "empty":
        content = b""
    elif harm == "foreign":
        content = b"something else altogether"
    else:
        content = other.read_bytes()
    file.write_bytes(content)
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


class Flaky:
    """Counts what it converts, and is interrupted at one image."""

    def __init__(self, stop_at: int):
        self.seen: Counter = Counter()
        self.stop_at = stop_at

    def register(self, monkeypatch) -> None:
        monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))

        @register_encoder("flaky")
        def make(chosen, device):
            return Encoder("flaky", {}, 3, self.convert, lambda batch: batch)

    def convert(self, image):
        colour = tuple(image.resize((1, 1)).getpixel((0, 0)))
        self.seen[colour] += 1
        if sum(self.seen.values()) == self.stop_at:
            raise KeyboardInterrupt
        return torch.tensor(colour, dtype=torch.float32)


@pytest.mark.parametrize("part_rows", [1, 8, 2048])
def test_an_interrupted_extraction_goes_on(
    tree, settings, monkeypatch, caplog, part_rows
):
    monkeypatch.setattr(cache, "PART_ROWS", part_rows)
    flaky = Flaky(stop_at=11)
    flaky.register(monkeypatch)
    settings = replace(settings, encoder=EncoderSettings("flaky"))
    with pytest.raises(KeyboardInterrupt):
        embed(tree, settings)
    caplog.set_level(logging.INFO, "federatedscope_ggeur")
    encoded = embed(tree, settings)
    # Of 11 rows, the batch that was under way and the one that waited are lost.
    assert "4 of 15 images are in the cache" in caplog.text
    assert encoded.extracted == 26
    alone = replace(settings, cache=settings.cache + "_alone")
    assert torch.equal(features(encoded), features(embed(tree, alone)))
    assert not list(Path(settings.cache).rglob("*.parts"))


def test_a_damaged_part_is_made_again(tree, settings, monkeypatch, caplog):
    monkeypatch.setattr(cache, "PART_ROWS", 1)
    flaky = Flaky(stop_at=15)
    flaky.register(monkeypatch)
    settings = replace(settings, encoder=EncoderSettings("flaky"))
    with pytest.raises(KeyboardInterrupt):
        embed(tree, settings)
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
    with pytest.raises(ConfigError, match=r"set ggeur\.encoder\.cache"):
        embed(tree, blocked)


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
