"""``predict --classes``: images by the names of classes alone; ``embed`` of names.

Tests of extras/text/predict.py.
"""

from __future__ import annotations

import csv
import io

import open_clip
import pytest
import torch
from pictures import CLASSES, add_text_clip, write_images
from PIL import Image

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data.encoders.base import EncoderSettings, build_encoder
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.predict import read_names
from federatedscope_ggeur.models import Model


@pytest.fixture
def clip(tmp_path) -> list[str]:
    return ["--model", add_text_clip(tmp_path), "--pretrained", "none"]


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("\n".join(CLASSES) + "\n\n")
    return path


@pytest.mark.slow
def test_probabilities_are_clips_own(tmp_path, clip, names, capsys):
    images = write_images(tmp_path / "images", ("day",), 2)
    where = ["--classes", str(names), "--cache", str(tmp_path / "c"), "--device", "cpu"]
    assert main(["predict", *where, *clip, "--csv", "--top", "3", str(images)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 3 * 3 * 2
    encoder = build_encoder(
        EncoderSettings("open_clip", clip[1], "none"), torch.device("cpu")
    )
    model, tokenize = encoder.both_sides.model, open_clip.get_tokenizer(clip[1])
    prompts = tokenize([f"a photo of a {name}." for name in CLASSES])
    with torch.no_grad(), Image.open(rows[0]["image"]) as image:
        x = encoder.preprocess(image.convert("RGB"))[None]
        x = x if encoder.frame is None else encoder.frame.normalise(x)
        logits, _ = model.get_logits(x, prompts)
    expected = dict(zip(CLASSES, Model.probabilities(logits)[0].tolist()))
    for row in rows[:3]:
        found = float(row["probability"])
        assert found == pytest.approx(expected[row["class"]], abs=1e-5)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--template", "{} {}"], "--template: .* one {}"),
        (["--device", "abacus"], "--device: must be auto"),
    ],
)
def test_refusals(tmp_path, clip, names, capsys, more, problem):
    image = next((write_images(tmp_path / "i", ("a",), 1)).rglob("*.jpg"))
    code = main(["predict", "--classes", str(names), *clip, *more, str(image)])
    assert code == 1
    import re

    assert re.search(problem, capsys.readouterr().err)


def test_a_template_is_not_for_a_run(tmp_path, capsys):
    image = next((write_images(tmp_path / "i", ("a",), 1)).rglob("*.jpg"))
    told = ["--run", str(tmp_path), "--template", "one", str(image)]
    assert main(["predict", *told]) == 1
    assert "--template: can only be used with --classes" in capsys.readouterr().err


def test_names_in_a_file(tmp_path):
    path = tmp_path / "n.txt"
    path.write_text("cat\n\n alarm_clock \n")
    assert read_names(str(path)) == ("cat", "alarm_clock")
    path.write_text("cat\ncat\n")
    with pytest.raises(ConfigError, match="'cat' twice"):
        read_names(str(path))
    path.write_text("\n")
    with pytest.raises(ConfigError, match="names no class"):
        read_names(str(path))
    with pytest.raises(ConfigError, match="cannot read"):
        read_names(str(tmp_path / "absent"))


def settings_of(tmp_path, root, data_type) -> list[str]:
    return [
        "data.type", data_type, "data.root", str(root),
        "data.splits", "[0.6, 0.0, 0.4]", "data.splitter", "iid",
        "data.splitter_args", "[]", "federate.client_num", "2",
        "ggeur.encoder.name", "open_clip",
        "ggeur.encoder.model", add_text_clip(tmp_path),
        "ggeur.encoder.pretrained", "none", "ggeur.encoder.num_workers", "0",
        "ggeur.encoder.cache", str(tmp_path / "cache"),
        "outdir", str(tmp_path / "runs"), "ggeur.closed_form", "zeroshot",
    ]  # fmt: skip


def text_files(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "cache").glob("text-*")}


@pytest.mark.slow
def test_embed_makes_text_and_a_new_template_makes_text_alone(
    tmp_path, quickstart, capsys
):
    images = write_images(tmp_path / "images")
    told = settings_of(tmp_path, images, "image_folder@ggeur")
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    out = capsys.readouterr().out
    assert "30 images" in out
    assert "text features of 3 classes: 3 prompts now" in out
    first = text_files(tmp_path)
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    out = capsys.readouterr().out
    assert "all were in the cache already" in out
    assert "text features of 3 classes: already in the cache" in out
    told += ["ggeur.text.templates", "['{}, drawn']"]
    assert main(["embed", "--cfg", str(quickstart), *told]) == 0
    out = capsys.readouterr().out
    assert "all were in the cache already" in out
    assert "3 prompts now" in out
    assert len(text_files(tmp_path) - first) == 1
    assert main(["--cfg", str(quickstart), *told]) == 0
    assert len(text_files(tmp_path)) == 2
