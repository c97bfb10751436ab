"""Every row of the bundled studies runs, on small data in the place of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bundled_studies import STUDIES, configs

from federatedscope_ggeur import run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain

CLASSES, DIM = 5, 12
#: The domains of the data sets that a head's study is of.
DOMAINS = {
    "digits@ggeur": ("mnist", "usps", "svhn", "syn"),
    "office_caltech@ggeur": ("amazon", "caltech", "dslr", "webcam"),
    "pacs@ggeur": ("photo", "art_painting", "cartoon", "sketch"),
    "office_home@ggeur": ("art", "clipart", "product", "real_world"),
}
ALL = {
    "federate.total_round_num": 1,
    "federate.sample_client_num": -1,
    "train.local_update_steps": 1,
    "eval.freq": 1,
    "dataloader.batch_size": 16,
}
HEADS = {
    **ALL,
    "data.type": "embeddings@ggeur",
    "data.splits": [0.7, 0.0, 0.3],
    "ggeur.step1_size": 8,
    "ggeur.step2_size": 8,
}
#: In the place of networks that take a GPU, which tests/extras/networks builds.
NETWORKS = {
    **ALL,
    "data.type": "bundled_digits@ggeur",
    "federate.client_num": 4,
    "data.splitter": "domain",
    "data.splitter_args": [{"fraction": 0.1}],
    "ggeur.network.name": "digits_cnn",
    "ggeur.network.augment": "none",
    "ggeur.encoder.image_size": 8,
    "ggeur.encoder.num_workers": 0,
    "ggeur.fedpg.noise_dim": 16,
    "ggeur.fedpg.steps": 2,
    "ggeur.fedpg.generator_batch": 16,
    "ggeur.fedpg.images_per_class": 4,
    "ggeur.fedpg.batch_size": 16,
}
#: The smallest network of five stages, all of which some rows name.
FIVE_STAGES = {"ggeur.network.name": "convnet5", "ggeur.encoder.image_size": 32}


def write_embeddings(folder, domains):
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(CLASSES, DIM))
    folder.mkdir()
    for name in domains:
        labels = np.arange(160) % CLASSES
        rows = centres[labels] + rng.normal(size=DIM) + rng.normal(size=(160, DIM))
        np.savez(folder / f"{name}.npz", features=rows.astype("f4"), labels=labels)
    np.savez(folder / "text.npz", features=centres, logit_scale=20.0)


def small(config, folder, cache):
    """What is set over a cell to make it small; None where that is not the cell."""
    if config["ggeur"]["network"]["name"]:
        unseen = config["ggeur"]["unseen_domains"]
        left_out = {"ggeur.unseen_domains": ["noisy"], "federate.client_num": 3}
        of_stages = config["ggeur"]["fedfa_plus"]
        many = max([*of_stages["stages"], *of_stages["align_stages"], 0]) > 3
        return {
            **NETWORKS,
            **(FIVE_STAGES if many else {}),
            **(left_out if unseen else {}),
            "ggeur.encoder.cache": str(cache),
        }
    domains = DOMAINS.get(config["data"]["type"], ("all",))
    place = folder / "_".join(domains)
    if not place.exists():
        write_embeddings(place, domains)
    clients = config["federate"]["client_num"]
    return {**HEADS, "data.root": str(place), "federate.client_num": min(clients, 12)}


def distinct(path, place, cache):
    """A run of each row, the first one of the columns, as far as they differ small."""
    found, rows = {}, set()
    for cell, config in configs(path):
        row = next(iter(cell.labels.values()))
        if row in rows:
            continue
        rows.add(row)
        if config["ggeur"]["text"]["model"] == "fedtpg":
            continue  # it needs CLIP's text tower: tests/engines/test_text_runs.py
        settings = dict(cell.settings)
        if config["data"]["type"] != "digits_quickstart@ggeur":
            settings.update(small(config, place, cache))
        else:
            settings.update(ALL)
        made = to_plain(load_config(cell.base, settings))
        made.pop("expname")
        found.setdefault(str(made), (cell, settings))
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where images are kept, once for all."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Where embeddings are, once for all."""
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def ran():
    """What has run: several studies have the same row of another paper's table."""
    return set()


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_runs(path, rows, cache, ran):
    found = distinct(path, rows, cache)
    assert len(found) > 1
    for made, (cell, settings) in found.items():
        if made in ran:
            continue
        ran.add(made)
        results = run(cell.base, overrides=settings)
        assert results.status == "finished", cell.labels
        assert math.isfinite(results.final.avg), cell.labels
