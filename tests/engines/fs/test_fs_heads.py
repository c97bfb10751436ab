"""Heads in closed form, calibration and baseline augmentations in FederatedScope."""

from __future__ import annotations

import pytest
import torch
from every_method import ADDED
from processes import check_same_head
from standalone import assert_same

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.models import CLOSED_FORMS

pytestmark = pytest.mark.slow

ALONE = {kind: ["ggeur.closed_form", kind] for kind in CLOSED_FORMS}
#: By lds labels and domains are confounded, and rows are not asked.
IID = ["data.splitter", "iid", "data.splitter_args", []]
ASKED = [
    [*settings, *IID]
    for kind, settings in ALONE.items()
    if CLOSED_FORMS[kind]().is_open
]
START = ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"]
CCVR = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 30]
BEST = ["ggeur.closed_form", "auto", "ggeur.init", "closed_form", "ggeur.keep", "best"]
MLP = ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2]
COMPRESSED = ["ggeur.statistics", "compressed", "ggeur.compressed.rank", 3]
POOLED = ["ggeur.geometry", "pooled"]
BY_SERVER = ["federate.make_global_eval", True]
PERSONAL = [*ALONE["lda"], *IID, "ggeur.personal.head", "means"]
STANDARD, WHITENED = ["ggeur.space", "standard"], ["ggeur.space", "whitened"]


@pytest.mark.parametrize(
    "settings",
    [
        *ALONE.values(),
        [*ALONE["ridge"], "ggeur.statistics", "summed"],
        [*ALONE["ncm"], "ggeur.statistics", "means"],
        [*ALONE["lda"], *COMPRESSED],
        [*ALONE["ncm"], *COMPRESSED, "ggeur.compressed.dtype", "float16"],
        POOLED,
        [*POOLED, *COMPRESSED, "ggeur.compressed.dtype", "float32"],
        [*START, *POOLED, "ggeur.statistics", "summed"],
        [
            *ALONE["fisher"], *BY_SERVER,
            "federate.client_num", 5, "ggeur.privacy.min_samples", 1,
        ],
        *ASKED,
        [*ALONE["mixture"], *IID, "ggeur.mixture.components", "client"],
        START,
        [*ALONE["auto"], *IID, "ggeur.init", "closed_form"],
        [*BEST, *STANDARD],
        [*BEST, *STANDARD, *IID],
        [*BEST, *IID, *BY_SERVER],
        CCVR,
        [*CCVR, *MLP, *BY_SERVER],
        [*START, *CCVR, "ggeur.base_method", "scaffold"],
        *(["ggeur.augmentation", added] for added in ADDED),
        *(
            ["ggeur.augmentation", added, "ggeur.base_method", "feddyn", *MLP]
            for added in ADDED
        ),
        *([*space, "ggeur.steps", steps] for space in (STANDARD, WHITENED)
          for steps in ([], [1, 2])),
        [*STANDARD, *START, *CCVR, *BY_SERVER],
        [*WHITENED, *CCVR, *MLP],
        [*STANDARD, "ggeur.augmentation", "fedmix", "ggeur.base_method", "scaffold"],
        [
            *STANDARD, "federate.client_num", 8,
            "federate.unseen_clients_rate", 0.25, "ggeur.privacy.min_samples", 5,
        ],
    ],
    ids=str,
)  # fmt: skip
def test_standalone_ends_with_the_same_head(fs, config, settings):
    assert_same(fs.run(*settings), Run(config(*settings)))


@pytest.mark.parametrize(
    "settings",
    [
        ALONE["lda"],
        ALONE["fisher"],
        ALONE["mixture"],
        [*ALONE["ridge"], "ggeur.statistics", "summed"],
        [*ALONE["ncm"], "ggeur.statistics", "means"],
        [*START, *POOLED, *COMPRESSED],
        ["ggeur.augmentation", "fedmix"],
        [*WHITENED, *CCVR, *MLP],
        [*STANDARD, *START, *CCVR],
        [*BEST, *IID],
    ],
    ids=str,
)
def test_distributed_ends_with_the_same_head(fleet, embedded, settings):
    """Each kind of message: streams carry it whichever form or method asks for it."""
    settings = [*settings, "ggeur.steps", [1, 2], "federate.client_num", 3]
    one = fleet(*settings)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3)]
    check_same_head(server, clients, embedded(*settings))


def test_standalone_leaves_clients_own_heads(fs, config):
    there, here = fs.run(*PERSONAL), Run(config(*PERSONAL))
    assert_same(there, here)
    assert there.results.round0.personal.avg is not None
    for number, data in here.history.own_bytes():
        file = there.folder / "heads" / f"client_{number}.safetensors"
        assert file.read_bytes() == data


def test_distributed_leaves_each_client_its_own_head(fleet, quickstart, words):
    settings = [*PERSONAL, "federate.client_num", 3]
    one = fleet(*settings)
    server = one.server()
    clients = {number: one.client(number) for number in (1, 2, 3)}
    assert [w.wait() for w in (server, *clients.values())] == [0] * 4
    here = Run(load_config(quickstart, [*words, *map(str, settings)]))
    results = here.follow(lambda record: None)
    found = server.results["round0"]["personal"]
    assert found["accuracy"] == results.round0.personal.accuracy
    assert found["kappa"] == results.round0.personal.kappa
    for number, data in here.history.own_bytes():
        (file,) = (clients[number].run_folder / "heads").iterdir()
        assert file.read_bytes() == data
    assert not (server.run_folder / "heads").exists()


def test_fs_models_are_the_head_that_is_left(fs):
    """The server's and every client's, though training was on one of another kind."""
    there = fs.run(*BEST, *IID)
    head = there.results.final.head
    assert head == "closed_form"
    clients = there.runner.client.values()
    for model in (there.server.models[0], *(client.model for client in clients)):
        state = model.state_dict()
        assert state.keys() == there.model.keys()
        for name, tensor in there.model.items():
            assert torch.equal(state[name], tensor)


def test_fs_files_hold_the_scores_of_a_head_in_closed_form(fs):
    there = fs.run(*ALONE["lda"])
    scores = [line for line in there.lines() if line["Round"] == 0]
    results = there.results
    assert scores
    assert results.rounds == []
    found = [line["Results_raw"] for line in scores if "Results_raw" in line]
    assert found[0]["test_domain_avg_acc"] == results.final.avg


def test_fs_best_results_know_the_calibrated_head(fs):
    there = fs.run(*CCVR)
    final = there.results.calibrated
    raw = [line["Results_raw"] for line in there.lines() if "Results_raw" in line]
    assert final.avg in [line.get("test_domain_avg_acc") for line in raw]


def test_a_finished_run_is_calibrated_when_restored(fs, config, tmp_path):
    fs.run("federate.save_to", tmp_path / "point")
    there = fs.run(*CCVR, "federate.restore_from", tmp_path / "point")
    expected = Run(config(*CCVR)).follow(lambda record: None)
    assert there.results.calibrated.accuracy == expected.calibrated.accuracy
