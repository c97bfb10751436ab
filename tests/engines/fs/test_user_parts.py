"""A user's own parts, from one module beside the YAML file, on every engine.

No file of the package knows their names: what is tested is the way in.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from own_process import ROOT, in_turn, python
from processes import Fleet
from safetensors.torch import load_file

MODULE = '''
"""Parts of a user's own."""

import numpy as np
import torch
from PIL import Image

from federatedscope_ggeur import (
    register_closed_form,
    register_encoder,
    register_image_reader,
    register_method,
    register_splitter,
)
from federatedscope_ggeur.data.encoders import Encoder
from federatedscope_ggeur.data.images import ImageDataSet, ImageDomain, Images
from federatedscope_ggeur.methods import FedAvg, weighted_mean
from federatedscope_ggeur.models.closed_forms import ClosedForm, linear_head
from federatedscope_ggeur.settings import Key, positive, whole


@register_method("toy_method")
class Toy(FedAvg):
    """Moves a share of the way to the clients' mean."""

    meaning = "moves a share of the way"
    SETTINGS = (Key("share", 1.0, "Share of the way.", positive),)

    def step(self, params, updates, state, context):
        return params + self.share * (weighted_mean(params, updates) - params), state


@register_closed_form("toy_form")
class Form(ClosedForm):
    """Scaled class means as weights, biases of zero."""

    meaning = "scaled class means"
    SETTINGS = (Key("scale", 1.0, "Of the means.", positive),)

    def work_out(self, seen):
        weight = self.scale * seen.offsets
        head = linear_head(weight, torch.zeros(len(weight), dtype=torch.float64), seen)
        return head, {"scale": self.scale}


@register_image_reader(
    "toy_images", [Key("per_class", 12.0, "Images of a class and domain.", whole(1))]
)
def toy_images(root, per_class):
    """Two domains of grey squares in three classes."""
    domains = []
    for d, name in enumerate(("dark", "light")):
        labels = np.repeat(np.arange(3), per_class)
        rng = np.random.default_rng(d)
        greys = (60 * labels + 40 * d + rng.integers(0, 30, len(labels))).tolist()

        def load(row, greys=greys):
            return Image.new("RGB", (8, 8), (greys[row], 10, greys[row] // 2))

        keys = tuple(f"{name}/{row}" for row in range(len(labels)))
        stamps = tuple(map(str, greys))
        domains.append(ImageDomain(name, Images(labels, keys, stamps, load), None))
    return ImageDataSet("toy", domains, ("a", "b", "c"))


@register_encoder(
    "toy_encoder", settings=[Key("gain", 1.0, "Of the features.", positive)]
)
def toy_encoder(settings, device):
    """Mean colour of an image, and its square."""
    gain = settings.options["gain"]

    def preprocess(image):
        return torch.from_numpy(np.asarray(image, np.float32) / 255).mean(dim=(0, 1))

    def encode(batch):
        return gain * torch.cat([batch, batch.square()], dim=1)

    return Encoder("toy colours", {"gain": gain}, 6, preprocess, encode)


@register_splitter(
    "toy_split", [Key("first", None, "Share of the first client.", positive)]
)
def toy_split(task, first):
    """The first client of a domain gets a share, the others what is left."""
    rest = (1 - first) / max(1, len(task.members) - 1)
    return np.array([first] + [rest] * (len(task.members) - 1))
'''
CONFIG = """
early_stop: {patience: 0}
federate: {method: ggeur, client_num: 4, total_round_num: 2}
data:
  type: toy_images@ggeur
  splits: [0.75, 0.0, 0.25]
  splitter: toy_split
  splitter_args: [{'first': 0.75}]
model: {type: ggeur_head}
criterion: {type: CrossEntropyLoss}
trainer: {type: ggeur_trainer}
eval:
  split: ['test']
  metrics: ['acc', 'correct']
  best_res_update_round_wise_key: test_acc
  count_flops: False
ggeur:
  use: True
  plugins: [toy_parts_of_a_user]
  base_method: toy_method
  toy_method: {share: 0.5}
  closed_form: toy_form
  toy_form: {scale: 3.0}
  init: closed_form
  steps: []
  privacy: {min_samples: 1}
  encoder: {name: toy_encoder, cache: cache}
  toy_encoder: {gain: 2.0}
  toy_images: {per_class: 16}
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "toy_parts_of_a_user.py").write_text(MODULE)
    (tmp_path / "toy.yaml").write_text(CONFIG)
    return tmp_path


def run(folder: Path, expname: str, *command: str) -> dict:
    """Run a command in another folder than the YAML file's; what the run leaves."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    settings = ["outdir", str(folder / "exp"), "expname", expname]
    done = python(*command, "--cfg", folder / "toy.yaml", *settings, cwd=elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    return outcome(folder / "exp" / expname)


def outcome(left: Path) -> dict:
    results = json.loads((left / "results.json").read_text())
    parts = [results["round0"]["closed_form"], *results["rounds"]]
    return {
        "accuracy": [part["accuracy"] for part in parts],
        "details": parts[0]["details"],
        "encoder": results["encoder"],
        "head": {
            k: t.tolist() for k, t in load_file(left / "head.safetensors").items()
        },
    }


@pytest.mark.slow
def test_embedded(folder):
    found = run(folder, "embedded", "-m", "federatedscope_ggeur")
    assert found["details"]["scale"] == 3.0
    assert found["encoder"].startswith("toy colours")
    results = json.loads((folder / "exp/embedded/results.json").read_text())
    # 36 rows of a domain to train on, three quarters of them to its first client.
    assert [c["train_rows"] for c in results["clients"]] == [27, 27, 9, 9]
    assert results["config"]["ggeur"]["toy_method"] == {"share": 0.5}


@pytest.mark.slow
def test_the_same_in_federatedscope(folder, fork_server):
    here = run(folder, "embedded", "-m", "federatedscope_ggeur")
    launch = ("-m", "federatedscope_ggeur", "--engine", "federatedscope")
    assert run(folder, "standalone", *launch) == here
    (folder / "fleet").mkdir()
    settings = ["expname", "ggeur_quickstart"]
    fleet = Fleet(fork_server, folder / "fleet", folder / "toy.yaml", settings)
    server = fleet.server()
    clients = [fleet.client(number) for number in (1, 2, 3, 4)]
    try:
        assert [worker.wait() for worker in (server, *clients)] == [0] * 5, fleet
    finally:
        fleet.end()
    assert outcome(server.run_folder) == here


@pytest.mark.slow
def test_its_keys_are_listed_and_checked(folder):
    calls = (
        ("keys", "--cfg", "toy.yaml"),
        ("--cfg", "toy.yaml", "ggeur.toy_method.share", "-1.0"),
        ("--cfg", "toy.yaml", "ggeur.plugins", "[]"),
    )
    found = in_turn([("-m", "federatedscope_ggeur", *words) for words in calls], folder)
    (_, listed), (wrong, why), (unnamed, why_unnamed) = found
    for key in ("toy_method.share = 1", "toy_form.scale = 1", "toy_encoder.gain = 1"):
        assert f"ggeur.{key}" in listed
    assert "ggeur.toy_images.per_class = 12" in listed
    assert "toy_split" in listed
    assert wrong == unnamed == 1
    assert "ggeur.toy_method.share: must be above 0" in why
    assert "ggeur.toy_method" in why_unnamed


def test_no_file_of_the_package_knows_them():
    for file in (ROOT / "federatedscope_ggeur").rglob("*.py"):
        assert "toy_" not in file.read_text(encoding="utf-8"), file
