"""FedCLIP, PromptFL and FedTPG in whole runs, and what they leave for `predict`.

Tests of cfg_ggeur/text_settings.py.
"""

from __future__ import annotations

import csv
import io

import pytest
import torch
from pictures import add_text_clip, write_images
from safetensors.torch import load_file

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    TrainingClient,
    train_broadcast,
)
from federatedscope_ggeur.models.text import CosineHead
from federatedscope_ggeur.models.text.adapter import AdapterHead

pytestmark = pytest.mark.slow

SGD = [
    "train.optimizer.lr", 0.02,
    "ggeur.steps", "[]", "federate.total_round_num", 4, "dataloader.batch_size", 16,
]  # fmt: skip
KINDS = {"fedclip": 2 * 16**2 + 2 * 16, "promptfl": 16 * 64, "fedtpg": None}


@pytest.fixture
def clip(tmp_path) -> list:
    return [
        "ggeur.encoder.model", add_text_clip(tmp_path), "ggeur.encoder.pretrained",
        "none", "ggeur.encoder.device", "cpu", "ggeur.encoder.cache", tmp_path / "c",
    ]  # fmt: skip


def trained(cfg):
    run = Run(cfg)
    return run, run.follow(lambda record: None)


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_little_travels(config, clip, kind):
    extra = ["ggeur.fedclip.loss", "class"] if kind == "fedclip" else []
    cfg = config("ggeur.text.model", kind, *SGD, *clip, *extra)
    run, results = trained(cfg)
    losses = [record.loss for record in results.rounds]
    assert losses[-1] < losses[0]
    numbers = run.engine.server.schema.num_parameters
    assert numbers == len(run.engine.server.params)
    assert KINDS[kind] in (numbers, None)
    sent = results.rounds[0].bytes_up / len(run.engine.clients)
    assert sent < 4 * numbers + 2000
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


def test_a_run_goes_on_from_its_checkpoint(config, clip, tmp_path):
    base = ["ggeur.text.model", "promptfl", *SGD, *clip]
    whole, _ = trained(config(*base))
    first = ["federate.total_round_num", 2, "federate.save_to", tmp_path / "point"]
    trained(config(*base, *first))
    again, _ = trained(config(*base, "federate.restore_from", tmp_path / "point"))
    assert again.history.head_bytes() == whole.history.head_bytes()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["ggeur.closed_form", "lda"], "closed_form: must be none with ggeur.text.m"),
        (["ggeur.calibrate", "ccvr"], "calibrate: must be none"),
        (["ggeur.mlp_hidden_dim", 3], "mlp_hidden_dim: must be 0"),
        (["ggeur.text.interpolate", 0.5], "interpolate: must be 1"),
        (["ggeur.space", "whitened"], "space: must be standard or raw"),
        (["ggeur.text.model", "fedtpg", "ggeur.steps", [1]], "steps: must be \\[\\]"),
        (
            ["ggeur.base_method", "local"],
            "text.model: must be '' with ggeur.base_method: local",
        ),
        (["ggeur.text.model", "coop"], "must be '' or one of .*fedclip, fedtpg"),
        (["ggeur.fedtpg.n_ctx", 65], "in 1..64"),
    ],
    ids=str,
)
def test_contradictions(quickstart, more, problem):
    with pytest.raises(ConfigError, match=problem):
        load_config(quickstart, ["ggeur.text.model", "fedclip", *more])


def test_prompts_need_the_tower(config, tmp_path):
    cfg = config("ggeur.text.model", "promptfl", "ggeur.encoder.name", "hog")
    with pytest.raises(ConfigError, match="has no text side"):
        Run(cfg)


def test_a_dry_run_knows_what_travels(config, clip):
    found = forecast(set_up(config("ggeur.text.model", "promptfl", *SGD, *clip)))
    assert found.rounds == 4
    per_client = found.round["train"].up / 3
    assert 4 * 1024 < per_client < 4 * 1024 + 2000


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
