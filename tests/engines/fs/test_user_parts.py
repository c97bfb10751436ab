"""A user's own parts, from one module beside the YAML file, inside FederatedScope (FS).

FS builds its config before it reads a file, so the keys of a user's parts must be there
by then. Every kind of part is shown by itself in docs/plugins.md, which is run. No file
of the package knows these names: what is tested is the way in.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from own_process import ROOT, in_turn
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
    meaning = "moves a share of the way"
    SETTINGS = (Key("share", 1.0, "Share of the way.", positive),)

    def step(self, params, updates, state, context):
        return params + self.share * (weighted_mean(params, updates) - params), state


@register_closed_form("toy_form")
class Form(ClosedForm):
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
    rest = (1 - first) / max(1, len(task.members) - 1)
    return np.array([first] + [rest] * (len(task.members) - 1))
'''
CONFIG = """
federate: {method: ggeur, client_num: 4, total_round_num: 2}
data:
  type: toy_images@ggeur
  splits: [0.75, 0.0, 0.25]
  splitter: toy_split
  splitter_args: [{'first': 0.75}]
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


@pytest.fixture(scope="module")
def ran(federatedscope, tmp_path_factory):
    """Status and output of each command, by its name, and the folder of runs.

    Each is in another folder than the YAML file's.
    """
    folder = tmp_path_factory.mktemp("parts")
    (folder / "toy_parts_of_a_user.py").write_text(MODULE)
    (folder / "toy.yaml").write_text(CONFIG)
    (folder / "elsewhere").mkdir()
    run = ("--cfg", str(folder / "toy.yaml"), "outdir", str(folder / "exp"))
    on_fs = ("--engine", "federatedscope")
    calls = {
        "embedded": (*run, "expname", "embedded"),
        "standalone": (*on_fs, *run, "expname", "standalone"),
        "keys": ("keys", *run[:2]),
        "wrong": (*run, "ggeur.toy_method.share", "-1.0"),
        "wrong on FS": (*on_fs, *run, "ggeur.toy_method.share", "-1.0"),
        "unnamed": (*run, "ggeur.plugins", "[]"),
    }
    commands = [("-m", "federatedscope_ggeur", *words) for words in calls.values()]
    return dict(zip(calls, in_turn(commands, folder / "elsewhere"))), folder / "exp"


def outcome(left: Path) -> dict:
    results = json.loads((left / "results.json").read_text())
    parts = [results["round0"]["closed_form"], *results["rounds"]]
    head = load_file(left / "head.safetensors")
    return {
        "accuracy": [part["accuracy"] for part in parts],
        "details": parts[0]["details"],
        "encoder": results["encoder"],
        "settings": results["config"]["ggeur"]["toy_method"],
        "head": {name: tensor.tolist() for name, tensor in head.items()},
    }


@pytest.mark.slow
def test_they_run_on_fs_as_on_the_embedded_engine(ran):
    ends, exp = ran
    for name in ("embedded", "standalone"):
        status, said = ends[name]
        assert status == 0, said
    here = outcome(exp / "embedded")
    assert outcome(exp / "standalone") == here
    assert here["details"]["scale"] == 3.0
    assert here["encoder"].startswith("toy colours")
    assert here["settings"] == {"share": 0.5}
    results = json.loads((exp / "embedded" / "results.json").read_text())
    # 36 rows of a domain to train on, three quarters of them to its first client.
    assert [c["train_rows"] for c in results["clients"]] == [27, 27, 9, 9]


@pytest.mark.slow
def test_their_keys_are_listed_and_checked(ran):
    ends, _ = ran
    _, listed = ends["keys"]
    for key in ("toy_method.share = 1", "toy_form.scale = 1", "toy_encoder.gain = 1",
                "toy_images.per_class = 12"):  # fmt: skip
        assert f"ggeur.{key}" in listed
    assert "toy_split" in listed
    for name in ("wrong", "wrong on FS"):
        assert ends[name][0] == 1
        assert "ggeur.toy_method.share: must be above 0" in ends[name][1]
    assert ends["unnamed"][0] == 1
    assert "ggeur.toy_method" in ends["unnamed"][1]


def test_no_file_of_the_package_knows_them():
    for file in (ROOT / "federatedscope_ggeur").rglob("*.py"):
        assert "toy_" not in file.read_text(encoding="utf-8"), file
