"""FedCLIP, PromptFL and FedTPG in whole runs, and what they leave for `predict`.

Tests of cfg_ggeur/run_settings.py.
"""

from __future__ import annotations

import csv
import io

import pytest
import torch
from pictures import add_text_clip, write_images
from safetensors.torch import load_file

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.adapter import AdapterHead
from federatedscope_ggeur.extras.text.base import CosineHead
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    TrainingClient,
    train_broadcast,
)

pytestmark = pytest.mark.slow

SGD = [
    "train.optimizer.lr", 0.02,
    "ggeur.steps", "[]", "federate.total_round_num", 3, "dataloader.batch_size", 16,
]  # fmt: skip
KINDS = {"fedclip": 2 * 16**2 + 2 * 16, "promptfl": 16 * 64, "fedtpg": None}


@pytest.fixture
def clip(tmp_path) -> list:
    return [
        "ggeur.encoder.model", add_text_clip(tmp_path), "ggeur.encoder.pretrained",
        "none", "ggeur.encoder.device", "cpu", "ggeur.encoder.cache", tmp_path / "c",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_little_travels_as_foretold(config, clip, kind):
    extra = ["ggeur.fedclip.loss", "class"] if kind == "fedclip" else []
    server = ["federate.make_global_eval", True]
    cfg = config("ggeur.text.model", kind, *SGD, *clip, *server, *extra)
    run = Run(cfg)
    results = run.follow(lambda record: None)
    losses = [record.loss for record in results.rounds]
    assert losses[-1] < losses[0]
    numbers = run.engine.server.schema.num_parameters
    assert numbers == len(run.engine.server.params)
    assert KINDS[kind] in (numbers, None)
    sent = results.rounds[0].bytes_up / len(run.engine.clients)
    assert sent < 4 * numbers + 2000
    assert forecast(set_up(cfg)).total.up == results.final.bytes_up
    wanted = AdapterHead if kind == "fedclip" else CosineHead
    assert isinstance(results.model, wanted)
    assert results.round0.space is None


def test_the_published_loss_skips_batches_of_one(config, clip):
    base = ["ggeur.text.model", "fedclip", *SGD, *clip, "data.splitter", "iid"]
    base += ["data.splitter_args", "[]", "train.local_update_steps", 1]
    rows = len(Run(config(*base)).engine.clients[1].features)
    run = Run(config(*base, "dataloader.batch_size", rows - 1))
    run.engine.side(1, AugmentationClient).prepare(None, None)
    sent = train_broadcast(run.engine.server, 1)
    update = run.engine.side(1, TrainingClient).train(sent)
    assert update.steps == 1  # of two


def test_prompts_need_the_tower(config):
    cfg = config("ggeur.text.model", "promptfl", "ggeur.encoder.name", "hog")
    with pytest.raises(ConfigError, match="has no text side"):
        Run(cfg)


@pytest.mark.parametrize("kind", ["fedclip", "promptfl"])
def test_predict_takes_what_is_left(tmp_path, quickstart, clip, kind, capsys):
    images = write_images(tmp_path / "images")
    told = [
        "data.type", "image_folder@ggeur", "data.root", images,
        "data.splits", "[0.6, 0.0, 0.4]", "federate.client_num", 2,
        "data.splitter", "iid", "data.splitter_args", "[]",
        "ggeur.encoder.num_workers", 0, *SGD, *clip, "ggeur.text.model", kind,
        "outdir", tmp_path / "runs", "expname", kind,
    ]  # fmt: skip
    assert main(["--cfg", str(quickstart), *map(str, told)]) == 0
    folder = tmp_path / "runs" / kind
    saved = load_file(folder / "head.safetensors")
    names = {"fedclip": {"texts", "scale"}, "promptfl": {"weight"}}
    assert names[kind] <= set(saved)
    capsys.readouterr()
    image = str(next(images.rglob("*.jpg")))
    assert main(["predict", "--run", str(folder), "--csv", "--top", "3", image]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    shares = torch.tensor([float(row["probability"]) for row in rows])
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)
