"""Which runs leave a head in closed form, and which of them the same one."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.extras.studies.left_heads import left_head, same_head_note

BEST = {"ggeur.closed_form": "auto", "ggeur.init": "closed_form", "ggeur.keep": "best"}
ALONE = {"ggeur.closed_form": "lda"}
WAYS_TO_TRAIN = {
    "FedAvg": {"ggeur.steps": []},
    "SCAFFOLD": {"ggeur.base_method": "scaffold", "train.optimizer.momentum": 0.0},
    "longer": {"federate.total_round_num": 9, "train.local_update_steps": 3},
    "FedProx": {"ggeur.base_method": "fedprox", "fedprox.mu": 0.5},
}


def of(*settings):
    return left_head(
        load_config("ggeur_quickstart", {k: v for s in settings for k, v in s.items()})
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**BEST, "ggeur.keep": "trained"},
        {"ggeur.calibrate": "ccvr"},
        {"ggeur.base_method": "local"},
    ],
    ids=str,
)
def test_a_run_that_leaves_what_it_trains_has_none(settings):
    assert of(settings) is None


@pytest.mark.parametrize("kind", [BEST, ALONE], ids=["best", "alone"])
@pytest.mark.parametrize("way", WAYS_TO_TRAIN)
def test_how_a_run_trains_is_no_part_of_the_head(kind, way):
    assert of(kind, WAYS_TO_TRAIN[way]) == of(kind) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"ggeur.closed_form": "ridge"},
        {"ggeur.lda.shrinkage": 0.5},
        {"ggeur.privacy.min_samples": 2},
        {"federate.client_num": 8},
        {"data.splitter_args": [{"fraction": 0.1}]},
        {"ggeur.unseen_domains": ["blurred"], "federate.client_num": 3},
        {"ggeur.temperature": "none"},
        {"ggeur.statistics": "compressed", "ggeur.steps": []},
        {"ggeur.base_method": "centralised"},
    ],
    ids=str,
)
def test_other_rows_and_other_settings_of_the_head_are_another_head(other):
    assert of(BEST, other) != of(BEST)


@pytest.mark.slow
def test_heads_that_are_said_to_be_one_are_one():
    """Closed forms of runs that train otherwise, to the bit."""
    short = {**BEST, "federate.total_round_num": 1, "data.splitter": "iid"}
    short["data.splitter_args"] = []
    digests = {
        run("ggeur_quickstart", overrides={**short, **way}).final.head_sha256
        for way in ({"ggeur.steps": []}, {}, WAYS_TO_TRAIN["SCAFFOLD"])
    }
    assert len(digests) == 1


def test_a_row_that_keeps_the_head_of_another_that_is_nothing_else():
    assert of({**BEST, "ggeur.closed_form": "lda"}) == of(ALONE)


def test_a_note_says_which_rows_and_what_to_set():
    note = same_head_note("lda", [f"row {i}" for i in range(500)])
    assert "one and the same head in closed form (lda)" in note
    assert "row 19 and 480 more." in note
    assert "set ggeur.keep: trained" in note
