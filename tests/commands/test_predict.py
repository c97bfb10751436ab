"""``ggeur predict``, behind the whole way of images to a run's head."""

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign_text import FORGED, hidden_in
from pictures import CLASSES, add_tiny_clip, write_images
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from written_runs import edited

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import encoders
from federatedscope_ggeur.data.images.files import load_image
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.predictor.predictor import Predictor, find_images

RUN = [
    "data.type", "image_folder@ggeur", "data.splitter", "domain",
    "data.splitter_args", "[]", "federate.client_num", "2",
    "federate.total_round_num", "10", "train.optimizer.lr", "0.1",
    "ggeur.encoder.num_workers", "0", "ggeur.encoder.num_threads", "1",
    "ggeur.encoder.device", "cpu", "ggeur.privacy.min_samples", "2",
    "ggeur.encoder.batch_size", "4",
]  # fmt: skip


def train(folder: Path, *words) -> Path:
    """A run on the images in `folder`/tree; its folder."""
    settings = ["data.root", folder / "tree", "outdir", folder, "expname", "run"]
    settings += ["ggeur.encoder.cache", folder / "cache", *words]
    command = ["--cfg", "ggeur_quickstart.yaml", *RUN]
    assert main([*command, *map(str, settings)]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> tuple[str, Path]:
    """A small CLIP model and a file with weights for it."""
    open_clip = pytest.importorskip("open_clip")
    folder = tmp_path_factory.mktemp("weights")
    model = add_tiny_clip(folder)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        state = open_clip.create_model(model).state_dict()
    save_file(state, folder / "tiny.safetensors")
    return model, folder / "tiny.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, weights) -> Path:
    """The folder of a run with open_clip, beside its images."""
    folder = tmp_path_factory.mktemp("clip")
    write_images(folder / "tree", per_class=8)
    model, file = weights
    encoder = ["name", "open_clip", "model", model, "pretrained", file]
    encoder += ["quick_gelu", "without", "normalize", "True"]
    words = zip([f"ggeur.encoder.{name}" for name in encoder[::2]], encoder[1::2])
    return train(folder, *(word for pair in words for word in pair))


@pytest.fixture(scope="module")
def simple(tmp_path_factory) -> Path:
    """The folder of a run with the pixels themselves and a hidden layer."""
    folder = tmp_path_factory.mktemp("pixels")
    write_images(folder / "tree", per_class=8)
    words = ["ggeur.encoder.name", "pixels", "ggeur.mlp_hidden_dim", "8"]
    return train(folder, *words)


@pytest.fixture
def copied(simple, tmp_path) -> Path:
    """A copy of the run `simple`, to be spoilt."""
    shutil.copytree(simple, tmp_path / "copied")
    return tmp_path / "copied"


@pytest.mark.slow
def test_images_to_clip_to_a_run_to_predictions(trained, weights, predict):
    """The probabilities are the head's on what the encoder gives."""
    tree = trained.parent / "tree"
    rows = json.loads(predict(trained, tree, "--json", "--top", 3, "--trust").out)
    assert [row["image"] for row in rows] == sorted(map(str, tree.rglob("*.jpg")))
    model, file = weights
    settings = encoders.EncoderSettings(
        "open_clip", model, str(file), normalize=True, quick_gelu="without"
    )
    encoder = encoders.build_encoder(settings, torch.device("cpu"))
    model = load_file(trained / "head.safetensors")
    right = 0
    for row in rows:
        image = encoder.preprocess(load_image(row["image"]))
        logits = model["classifier.weight"] @ encoder.encode(image[None])[0]
        logits = logits + model["classifier.bias"]
        (expected,) = Model.probabilities(logits[None])
        order = expected.argsort(descending=True).tolist()
        assert [c["class"] for c in row["classes"]] == [CLASSES[c] for c in order]
        found = torch.tensor([c["probability"] for c in row["classes"]])
        assert torch.allclose(found, expected[order], atol=1e-5)
        assert row["error"] is None
        right += row["classes"][0]["class"] == Path(row["image"]).parent.name
    assert right > 0.8 * len(rows)


@pytest.mark.slow
def test_a_hidden_layer_and_every_form_of_output(simple, predict):
    image = simple.parent / "tree" / "day" / "cross" / "000.jpg"
    expected = next(Predictor(simple).predict([str(image)], top=2))
    names, shares = zip(*expected.classes)
    assert shares[0] >= shares[1]
    text = predict(simple, image, "--top", 2).out
    pairs = ", ".join(f"{n} {p:.3f}" for n, p in expected.classes)
    assert text == f"{image}: {pairs}\n"
    text = predict(simple, image, "--top", 2, "--csv").out
    model, *rows = csv.reader(io.StringIO(text))
    assert model[:5] == ["image", "rank", "class", "probability", "error"]
    assert model[5:] == ["confidence", "flagged"]
    assert {float(row[5]) for row in rows} == {shares[0]}
    assert [row[:3] for row in rows] == [
        [str(image), str(rank), name] for rank, name in enumerate(names, 1)
    ]
    assert [float(row[3]) for row in rows] == list(shares)
    (row,) = json.loads(predict(simple, image, "--top", 99, "--json").out)
    assert len(row["classes"]) == len(CLASSES)
    assert sum(c["probability"] for c in row["classes"]) == pytest.approx(1)


def test_classes_and_files_may_be_called_anything(simple, copied, tmp_path, predict):
    """On a terminal and in CSV escaped, and in JSON as they are."""
    odd = ["=1+1", f"x\n{FORGED}\x1b[2J\x9b", "\u202eabc\U000e0041\ud800", "\u82b8"]
    with edited(copied) as results:
        names = results["class_names"]
        names[: len(odd)] = odd[: len(names)]
    with safe_open(str(copied / "head.safetensors"), framework="pt") as file:
        about = {**file.metadata(), "class_names": json.dumps(names)}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors, copied / "head.safetensors", about)
    image = tmp_path / f"=a\n{FORGED}\x1b.jpg"
    shutil.copy(simple.parent / "tree" / "day" / "cross" / "000.jpg", image)
    words, shown = [copied, image, "--top", len(names)], {}
    for form in ("", "--csv", "--json"):
        shown[form] = predict(*words, *filter(None, [form])).out
        assert not hidden_in(shown[form])
    assert len(shown[""].splitlines()) == 1
    assert len(shown["--csv"].splitlines()) == len(names) + 1
    cells = [cell for row in csv.reader(io.StringIO(shown["--csv"])) for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]
    (row,) = json.loads(shown["--json"])
    assert row["image"] == str(image)
    assert {one["class"] for one in row["classes"]} == set(names)
    image.write_bytes(b"no picture")
    shown = predict(copied, image, status=1)
    assert [len(text.splitlines()) for text in shown] == [1, 1]


def test_batches_make_no_difference(simple):
    images = find_images([str(simple.parent / "tree")])
    assert len(images) > 8
    predictor = Predictor(simple)
    together = list(predictor.predict(images))
    for image, found in zip(images, together):
        (alone,) = predictor.predict([image])
        assert alone.image == found.image == image
        assert alone.classes[0][0] == found.classes[0][0]
        assert alone.classes[0][1] == pytest.approx(found.classes[0][1], abs=1e-5)


def test_broken_images_are_named_and_the_others_predicted(simple, tmp_path, predict):
    good = (simple.parent / "tree" / "day" / "cross" / "000.jpg").read_bytes()
    for name, content in (
        ("a.jpg", good),
        ("b.jpg", good[: len(good) // 2]),
        ("c.png", b"no image"),
        ("d.jpg", good),
    ):
        (tmp_path / name).write_bytes(content)
    for form in ("--json", "--csv", "--top=1"):
        shown = predict(simple, tmp_path, form, status=1)
        for name in ("b.jpg", "c.png"):
            assert f"error: {tmp_path / name}: " in shown.err
        assert len(shown.err.splitlines()) == 2
        if form == "--json":
            rows = json.loads(shown.out)
            assert [bool(row["classes"]) for row in rows] == [True, False, False, True]
            assert "b.jpg" in rows[1]["error"]
            assert rows[0]["classes"] == rows[3]["classes"]
        elif form == "--csv":
            rows = list(csv.reader(io.StringIO(shown.out)))[1:]
            assert [bool(row[4]) for row in rows] == [False, True, True, False]
        else:
            assert f"{tmp_path / 'b.jpg'}: cannot be read\n" in shown.out
            assert len(shown.out.splitlines()) == 4


def test_folders_are_searched_and_hidden_files_passed_over(tmp_path):
    tree = write_images(tmp_path / "tree", domains=("b", "a"), per_class=1)
    (tree / ".hidden").mkdir()
    shutil.copy(tree / "a" / "cross" / "000.jpg", tree / ".hidden" / "000.jpg")
    (tree / "notes.txt").write_text("no image")
    (tree / ".cover.jpg").write_text("")
    odd = tmp_path / "named itself"
    shutil.copy(tree / "a" / "cross" / "000.jpg", odd)
    found = find_images([str(odd), str(tree)])
    below = [str(tree / d / c / "000.jpg") for d in "ab" for c in CLASSES]
    assert found == [str(odd), *below]


def test_weights_elsewhere_and_other_weights(trained, weights, tmp_path, predict):
    _, file = weights
    image = find_images([str(trained.parent / "tree")])[0]
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    with edited(moved) as results:
        encoder = results["config"]["ggeur"]["encoder"]
        encoder["pretrained"] = "/moved/tiny.safetensors"
    assert "/moved/tiny.safetensors" in predict(moved, image, "--trust", status=1).err
    here = predict(moved, image, "--pretrained", file).out
    assert predict(trained, image, "--trust").out == here
    state = load_file(file)
    state["visual.proj"] = state["visual.proj"] * 1.01
    save_file(state, tmp_path / "other.safetensors")
    other = tmp_path / "other.safetensors"
    shown = predict(trained, image, "--pretrained", other, status=1)
    assert "was trained on embeddings by open_clip" in shown.err
    assert not shown.out


@pytest.mark.parametrize(
    ("key", "value"), [("normalize", True), ("image_size", 8.0), ("name", "hog")]
)
def test_other_encoder_settings_are_refused(copied, key, value):
    with edited(copied) as results:
        results["config"]["ggeur"]["encoder"][key] = value
    with pytest.raises(DataError, match="was trained on embeddings by pixels"):
        Predictor(copied)


def test_a_run_on_embeddings_is_refused(
    tmp_path, predict, ggeur, quickstart, simple, embeddings_folder
):
    words = ["outdir", tmp_path, "expname", "run", "federate.total_round_num", 1]
    words += ["data.type", "embeddings@ggeur", "data.root", embeddings_folder]
    (embeddings_folder / "encoder.txt").write_text("some network's last layer")
    ggeur("--cfg", quickstart, *words)
    error = predict(tmp_path / "run", simple.parent / "tree", status=1).err
    assert "the run was on embeddings (made by: " in error
    assert "made by: some network's last layer)" in error


@pytest.mark.parametrize("absent", ["results.json", "head.safetensors"])
def test_what_is_no_run_is_refused(copied, absent):
    shutil.rmtree(copied / "private")
    (copied / absent).unlink()
    with pytest.raises(ConfigError, match=rf"no {absent} in|holds no {absent}"):
        Predictor(copied)


def test_of_a_killed_run_it_says_how_to_go_on(copied):
    (copied / "results.json").unlink()
    with pytest.raises(ConfigError) as error:
        Predictor(copied)
    said = str(error.value)
    assert "was cut off, or is still at work, so it has no results.json" in said
    assert f"federate.restore_from '{copied / 'private' / 'checkpoint'}'" in said


def test_a_damaged_head_is_refused(copied):
    whole = (copied / "head.safetensors").read_bytes()
    for spoilt in (b"", whole[:50], whole[:-4]):
        (copied / "head.safetensors").write_bytes(spoilt)
        with pytest.raises(DataError, match=r"head\.safetensors: the file is damaged"):
            Predictor(copied)


def test_a_head_of_another_run_is_refused(copied, trained, simple):
    shutil.copy(trained / "head.safetensors", copied / "head.safetensors")
    with pytest.raises(DataError, match=r"and results.* are not from the same run"):
        Predictor(copied)
    shutil.copy(simple / "head.safetensors", copied / "head.safetensors")
    with edited(copied) as results:
        results["config"]["ggeur"]["mlp_hidden_dim"] = 0.0
    with pytest.raises(DataError, match="does not fit the run's settings"):
        Predictor(copied)


def test_wrong_calls_are_named(simple, tmp_path, predict):
    for words, message in (
        ([tmp_path / "nowhere"], "nowhere' does not exist; name an image"),
        ([tmp_path], "holds no image files"),
        ([simple / "curve.png", "--device", "tpu"], "--device: must be auto"),
    ):
        assert message in predict(simple, *words, status=1).err
    for words in (["--top", 0, "x"], ["--json", "--csv", "x"], []):
        with pytest.raises(SystemExit) as caught:
            predict(simple, *words)
        assert caught.value.code == 2
    assert load_config(simple / "config.yaml").ggeur.encoder.name == "pixels"


@pytest.mark.slow
def test_a_run_on_grey_images_is_predicted_with_their_encoder(tmp_path, monkeypatch):
    """Of the two that such a name stands for, by the run's record."""
    monkeypatch.setattr(encoders.ENCODERS, "_parts", dict(encoders.ENCODERS))

    @encoders.register_encoder("two_faced", asks_grey=True)
    def make(settings, device, grey):
        encoder = encoders.build_encoder(
            encoders.EncoderSettings("pixels", image_size=4), device
        )
        return replace(encoder, title="grey" if grey else "colour")

    words = ["data.type", "bundled_digits@ggeur", "data.splitter", "iid"]
    words += ["federate.client_num", "4", "ggeur.encoder.name", "two_faced"]
    run = train(tmp_path, *words, "federate.total_round_num", "1")
    assert Predictor(run).encoder.title == "grey"


@pytest.mark.slow
def test_images_that_the_head_is_not_sure_of_are_flagged(tmp_path, predict):
    write_images(tmp_path / "tree", per_class=8)
    words = ["ggeur.encoder.name", "pixels", "ggeur.closed_form", "lda"]
    run = train(tmp_path, *words, "ggeur.confidences", "True")
    least = Predictor(run).confidence_at(0.5)
    assert 0 <= least < 1  # 0 if more than half lie in the last bin
    text = predict(run, tmp_path / "tree", "--flag-below", 0.5, "--json").out
    rows = json.loads(text)
    assert all(row["flagged"] == (row["confidence"] < least) for row in rows)
    assert {row["calibrated_by"] for row in rows} == {"leave_one_out"}
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Predictor(run).confidence_at(1.5)


def test_a_run_that_was_not_asked_cannot_flag(simple, predict):
    image = simple.parent / "tree" / "day" / "cross" / "000.jpg"
    said = predict(simple, image, "--flag-below", 0.1, status=1).err
    assert "the run recorded no confidences" in said
