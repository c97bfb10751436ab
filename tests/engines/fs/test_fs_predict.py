"""`predict` with a run of FederatedScope (FS): the same files, the same predictions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pictures import write_images
from standalone import as_before, set_up

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.commands.console import run_with_files
from federatedscope_ggeur.predictor.predictor import Predictor, find_images
from federatedscope_ggeur.reporting import Results

EXAMPLES = Path(__file__).parents[3] / "scripts" / "example_configs"


def test_a_run_on_fs_predicts_as_the_embedded_one(federatedscope, tmp_path):
    tree = write_images(tmp_path / "tree")
    settings = [
        "data.type", "image_folder@ggeur", "data.root", str(tree),
        "data.splitter", "domain", "data.splitter_args", "[]",
        "federate.client_num", "2", "federate.total_round_num", "3",
        "ggeur.encoder.name", "pixels", "ggeur.encoder.num_workers", "0",
        "ggeur.encoder.model", "", "ggeur.encoder.pretrained", "",
        "ggeur.encoder.cache", str(tmp_path / "cache"),
        "outdir", str(tmp_path / "out"),
    ]  # fmt: skip
    config = EXAMPLES / "ggeur_own_images.yaml"
    with as_before():
        on_fs = set_up(config, [*settings, "expname", "fs"]).go()
    assert run_with_files(load_config(config, [*settings, "expname", "here"])) == 0
    images = find_images([str(tree)])
    here, there = (
        list(Predictor(folder).predict(images, top=3))
        for folder in (tmp_path / "out" / "here", on_fs.folder)
    )
    assert [one.image for one in here] == images
    assert [one.classes for one in here] == [one.classes for one in there]
    assert on_fs.results.encoder.startswith("pixels of 16 x 16, id ")
    assert Results.from_json(
        (tmp_path / "out" / "here" / "results.json").read_text()
    ).class_names == ["circle", "cross", "square"]
    assert here[0].classes[0][1] == pytest.approx(
        torch.tensor([p for _, p in here[0].classes]).max().item()
    )
