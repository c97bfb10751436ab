"""Text in whole runs: zero-shot, the prior, the ensemble, training near zero-shot.

Tests of extras/text/prepare.py.
"""

import csv
import io

import pytest
import torch
from own_process import python
from safetensors.torch import load_file

from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.adapter import AdapterHead
from federatedscope_ggeur.extras.text.base import CosineHead
from federatedscope_ggeur.extras.text.load import read_text_file
from federatedscope_ggeur.extras.text.prepare import class_texts

ZERO_SHOT = ["ggeur.closed_form", "zeroshot"]
LDA = ["ggeur.closed_form", "lda"]


@pytest.fixture
def texts(embeddings_folder):
    return read_text_file(embeddings_folder / "text.npz", "abcdefghijkl", 16)


def ended(cfg):
    return Run(cfg).follow(lambda record: None)


def test_zero_shot_sends_nothing_up(config):
    results = ended(config(*ZERO_SHOT))
    assert results.rounds == []
    assert results.round0.statistics_bytes_up == {}
    assert results.round0.closed_form.method == "zeroshot"
    assert results.final.avg > 0.5  # of 12 classes


def test_training_starts_at_zero_shot(config, texts):
    start = [*ZERO_SHOT, "ggeur.init", "closed_form", "ggeur.steps", "[]"]
    still = ended(config(*start, "train.optimizer.lr", 1e-30))
    assert torch.allclose(still.model.classifier.weight, 20 * texts.features)
    moved = ended(config(*start, "ggeur.space", "standard"))
    assert moved.round0.closed_form.accuracy == still.round0.closed_form.accuracy
    assert len(moved.rounds) == 3


def test_a_prior_makes_classes_known_that_nobody_sends(config):
    without, prior = (ended(config(*LDA, "ggeur.text.prior", k)) for k in (0, 4))
    assert without.round0.closed_form.details["left_out"] == 8  # of 12
    assert without.final.avg < 0.4
    assert prior.final.avg > 0.9
    assert prior.round0.closed_form.details["text_bridge"] > 0


def test_the_head_between_zero_shot_and_the_trained_one(config, texts):
    whole, part = (ended(config("ggeur.text.interpolate", t)) for t in (1, 0.25))
    expected = 0.25 * whole.model.classifier.weight + 0.75 * 20 * texts.features
    assert torch.allclose(part.model.classifier.weight, expected, atol=1e-4)
    bias = 0.25 * whole.model.classifier.bias
    assert torch.allclose(part.model.classifier.bias, bias, atol=1e-5)


@pytest.mark.slow
def test_nothing_of_text_is_loaded_without_a_text_key(embeddings_folder, quickstart):
    program = f"""
import sys
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
cfg = load_config({str(quickstart)!r}, [
    "data.type", "embeddings@ggeur", "data.root", {str(embeddings_folder)!r},
    "federate.client_num", "3", "ggeur.closed_form", "lda",
])
run = Run(cfg)
assert run.prepared is None
run.follow(lambda record: None)
loaded = [name for name in sys.modules if name.startswith("open_clip")]
named = ("", ".manifest", ".keys", ".templates")
own = ["federatedscope_ggeur.extras.text" + name for name in named]
loaded += [n for n in sys.modules if n.startswith(own[0]) and n not in own]
print(loaded)
"""
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stderr


def test_text_of_another_length_is_refused(config, embeddings_folder, clip):
    (embeddings_folder / "text.npz").unlink()
    cfg = config(*ZERO_SHOT, *clip)
    names = [f"class {i}" for i in range(12)]
    found = class_texts(cfg, names, 16)
    assert found.features.shape == (12, 16)
    with pytest.raises(ConfigError, match="D = 16, but the embeddings have D = 20"):
        class_texts(cfg, names, 20)


# FedCLIP, PromptFL and FedTPG in whole runs, and what they leave for `predict`.
#
# Tests of cfg_ggeur/run_settings.py.


SGD = [
    "train.optimizer.lr", 0.02,
    "ggeur.steps", "[]", "federate.total_round_num", 3, "dataloader.batch_size", 16,
]  # fmt: skip
KINDS = {"fedclip": 2 * 16**2 + 2 * 16, "promptfl": 16 * 64, "fedtpg": None}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_little_travels_as_foretold(config, clip, kind):
    server = ["federate.make_global_eval", True]
    cfg = config("ggeur.text.model", kind, *SGD, *clip, *server)
    run = Run(cfg)
    results = run.follow(lambda record: None)
    losses = [record.loss for record in results.rounds]
    # FedCLIP lowers another loss, over pairs; see test_text_features.py.
    assert kind == "fedclip" or losses[-1] < losses[0]
    numbers = run.engine.server.schema.num_parameters
    assert numbers == len(run.engine.server.params)
    assert KINDS[kind] in (numbers, None)
    sent = results.rounds[0].bytes_up / len(run.engine.clients)
    assert sent < 4 * numbers + 2000
    foretold = forecast(set_up(cfg)).total.up
    assert foretold == pytest.approx(results.final.bytes_up, rel=0.01)
    wanted = AdapterHead if kind == "fedclip" else CosineHead
    assert isinstance(results.model, wanted)
    assert results.round0.space is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fedclip", "promptfl"])
def test_predict_takes_what_is_left(
    tmp_path, quickstart, of_images, kind, ggeur, predict
):
    told = [*of_images, *SGD, "ggeur.text.model", kind, "expname", kind]
    ggeur("--cfg", quickstart, *told)
    folder = tmp_path / "runs" / kind
    saved = load_file(folder / "head.safetensors")
    names = {"fedclip": {"texts", "scale"}, "promptfl": {"weight"}}
    assert names[kind] <= set(saved)
    image = next((tmp_path / "images").rglob("*.jpg"))
    said = predict(folder, "--csv", "--top", 3, image).out
    rows = list(csv.DictReader(io.StringIO(said)))
    shares = torch.tensor([float(row["probability"]) for row in rows])
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)
