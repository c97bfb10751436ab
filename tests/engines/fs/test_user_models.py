"""A network and a text model of a user's own, from a module beside the YAML file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from own_process import in_turn
from safetensors.torch import load_file

MODULE = '''
"""Models of a user's own."""

import torch
from torch import nn
from torch.nn import functional as F

from federatedscope_ggeur import register_network, register_text_model
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.networks import Network
from federatedscope_ggeur.models.text import TextPart
from federatedscope_ggeur.settings import Key, positive


class Small(nn.Module):
    def __init__(self, channels, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, num_classes)

    def represent(self, images):
        return self.norm(self.conv(images)).relu().mean(dim=(2, 3))

    def classify(self, representation):
        return self.fc(representation)

    def forward(self, images):
        return self.classify(self.represent(images))


@register_network("toy_network", meaning="one convolution")
def toy_network(image, num_classes, settings, dropout):
    return Network(
        Small(image.channels, num_classes),
        width=4,
        classifier="fc",
        represent=Small.represent,
        classify=Small.classify,
    )


class Scaled(Model):
    def __init__(self, texts, start):
        super().__init__(texts.features.shape[1], len(texts.features))
        self.scale = nn.Parameter(torch.full((self.in_features,), start))
        self.register_buffer("texts", texts.weight.clone())

    def represent(self, features):
        return F.normalize(features * self.scale, dim=1)

    def classify(self, representation):
        return representation @ self.texts.T


@register_text_model("toy_text")
class ToyText(TextPart):
    meaning = "scales dimensions"
    SETTINGS = (Key("start", 1.0, "Of the scales.", positive),)

    @classmethod
    def build(cls, texts, start=1.0):
        return Scaled(texts, float(start))
'''
COMMON = """
early_stop: {patience: 0}
federate: {method: ggeur, client_num: 2, total_round_num: 2}
train: {local_update_steps: 3, optimizer: {lr: 0.05}}
model: {type: ggeur_head}
criterion: {type: CrossEntropyLoss}
trainer: {type: ggeur_trainer}
eval: {split: ['test'], metrics: ['acc', 'correct'], count_flops: False,
       best_res_update_round_wise_key: test_acc}
"""
NETWORK = """
data:
  type: bundled_digits@ggeur
  splits: [0.2, 0.0, 0.1]
  splitter: iid
dataloader: {batch_size: 32, drop_last: True}
ggeur:
  use: True
  plugins: [toy_models_of_a_user]
  augmentation: none
  encoder: {name: image, image_size: 8, cache: cache, num_workers: 0}
  network: {name: toy_network}
"""
TEXT = """
data: {type: embeddings@ggeur, root: rows, splits: [0.7, 0.0, 0.3], splitter: iid}
ggeur:
  use: True
  plugins: [toy_models_of_a_user]
  steps: []
  text: {model: toy_text}
  toy_text: {start: 2.0}
"""
KINDS = {"network": NETWORK, "text": TEXT}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    tmp_path = tmp_path_factory.mktemp("models")
    (tmp_path / "toy_models_of_a_user.py").write_text(MODULE)
    for kind, rest in KINDS.items():
        clients = {"network": "client_num: 4"}.get(kind, "client_num: 2")
        common = COMMON.replace("client_num: 2", clients)
        (tmp_path / f"{kind}.yaml").write_text(common + rest)
    rng = np.random.default_rng(0)
    texts = rng.normal(size=(3, 8))
    (tmp_path / "rows").mkdir()
    for domain in ("photo", "sketch"):
        labels = np.arange(60) % 3
        features = texts[labels] + rng.normal(size=(60, 8))
        np.savez(tmp_path / "rows" / domain, features=features, labels=labels)
    np.savez(tmp_path / "rows" / "text", features=texts, logit_scale=20.0)
    return tmp_path


def runs(folder: Path, name: str, *engine: str) -> dict[str, dict]:
    """What a run of each kind leaves: its settings, accuracies, losses and model."""
    calls = [
        ("-m", "federatedscope_ggeur", *engine, "--cfg", f"{kind}.yaml",
         "outdir", "exp", "expname", f"{kind}_{name}")
        for kind in KINDS
    ]  # fmt: skip
    for status, output in in_turn(calls, folder):
        assert status == 0, output
    return {kind: outcome(folder / "exp" / f"{kind}_{name}") for kind in KINDS}


def outcome(left: Path) -> dict:
    results = json.loads((left / "results.json").read_text())
    head = load_file(left / "head.safetensors")
    return {
        "accuracy": [record["accuracy"] for record in results["rounds"]],
        "losses": [record["loss"] for record in results["rounds"]],
        "head": {name: tensor.tolist() for name, tensor in head.items()},
        "ggeur": results["config"]["ggeur"],
    }


@pytest.fixture(scope="module")
def embedded(folder):
    return runs(folder, "embedded")


@pytest.fixture(scope="module")
def there(folder, federatedscope):
    return runs(folder, "standalone", "--engine", "federatedscope")


@pytest.mark.slow
def test_a_network_on_the_embedded_engine(embedded):
    found = embedded["network"]
    assert found["losses"][-1] != found["losses"][0]
    assert found["ggeur"]["network"]["name"] == "toy_network"
    assert set(found["head"]) >= {"conv.weight", "fc.bias", "norm.running_mean"}


@pytest.mark.slow
def test_a_text_model_on_the_embedded_engine(embedded):
    found = embedded["text"]
    assert found["losses"][-1] != found["losses"][0]
    assert found["ggeur"]["toy_text"] == {"start": 2.0}
    assert set(found["head"]["scale"]) != {2.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_in_federatedscope(embedded, there, kind):
    for name in ("accuracy", "losses", "head"):
        assert embedded[kind][name] == there[kind][name]
