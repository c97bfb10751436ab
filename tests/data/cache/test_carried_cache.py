"""A cache on a machine without images, without weights, or shared by processes.

Tests of lock.py and data/encoding.py.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from own_process import PATIENCE
from pictures import write_images

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    embed_data,
    register_encoder,
    register_image_reader,
)
from federatedscope_ggeur.data.encoders import ENCODERS
from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.trees import read_image_folder
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.settings import Key, whole

TYPE = "image_folder@ggeur"
ROOT = Path(__file__).parents[3]


def embed(tree: Path | str, settings: EncodingSettings):
    return embed_data(TYPE, str(tree), settings)


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


def register_gated(gate: Path | None = None) -> None:
    """An encoder; where there is a `gate`, each image waits until that file is there.

    That it waits is told by a file beside the gate.
    """

    @register_encoder("gated")
    def make(settings, device):
        def preprocess(image):
            if gate is not None:
                gate.with_name("waits").touch()
                wait_for(gate)
            return torch.tensor(image.getpixel((0, 0)), dtype=torch.float32)

        return Encoder("gated", {}, 3, preprocess, lambda batch: batch)


def wait_for(file: Path, process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert process is None or process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def embed_gated(tree: str, cache: str):
    settings = EncodingSettings(
        EncoderSettings("gated"), ExtractionSettings(1, 0, 1), "cpu", cache
    )
    return embed_data(TYPE, tree, settings)


OTHER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_carried_cache as shared
shared.register_gated(Path(sys.argv[2]))
print(shared.embed_gated(*sys.argv[3:]).extracted)
"""


@pytest.fixture
def gate(tmp_path) -> Path:
    return tmp_path / "open"


@pytest.fixture
def other_process(tree, settings, gate, monkeypatch):
    """Another process, which holds the lock and waits at the gate."""
    monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))
    register_gated()
    here = Path(__file__).parent
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(here), str(gate), str(tree), settings.cache],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    try:
        wait_for(gate.with_name("waits"), process)
        yield process
    finally:
        process.kill()
        process.communicate()


class Opens(logging.Handler):
    """Opens the gate once this process is told that it waits for the lock."""

    def __init__(self, gate: Path):
        super().__init__()
        self.gate = gate

    def emit(self, record):
        if "holds the lock for embedding day (train)" in record.getMessage():
            self.gate.touch()


@pytest.mark.slow
def test_of_two_processes_one_embeds_and_one_waits(
    tree, settings, gate, other_process, caplog
):
    caplog.set_level(logging.INFO, "federatedscope_ggeur")
    logger, opens = logging.getLogger("federatedscope_ggeur"), Opens(gate)
    logger.addHandler(opens)
    try:
        encoded = embed_gated(str(tree), settings.cache)
    finally:
        logger.removeHandler(opens)
    assert gate.exists()
    out, _ = other_process.communicate(timeout=PATIENCE)
    assert encoded.extracted + int(out) == 30
    assert int(out) >= 15
    assert len(encoded) == 30


@pytest.mark.slow
def test_a_killed_process_leaves_the_lock_free(tree, settings, other_process, caplog):
    other_process.kill()
    other_process.wait()
    caplog.set_level(logging.INFO, "federatedscope_ggeur")
    assert embed_gated(str(tree), settings.cache).extracted == 30
    assert "another process" not in caplog.text


def test_a_reader_that_got_a_setting_finds_what_it_recorded_before(
    tree, settings, monkeypatch
):
    """At its default it means what was meant then."""
    monkeypatch.setattr(IMAGE_READERS, "_parts", dict(IMAGE_READERS))

    def read(root, limit=None):
        return read_image_folder(root)

    register_image_reader("grown")(read)
    here = embed_data("grown@ggeur", str(tree), settings)
    register_image_reader("grown", [Key("limit", 7.0, "Images.", whole(1))])(read)
    there = embed_data("grown@ggeur", "not/there", settings)
    assert there.files == here.files
    with pytest.raises(DataError, match="does not exist"):
        embed_data("grown@ggeur", "not/there", settings, options={"limit": 8})
