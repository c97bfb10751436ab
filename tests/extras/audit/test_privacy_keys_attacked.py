"""What settings beside the threshold keep from the attacks."""

import pytest
import torch

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.base import Clock
from federatedscope_ggeur.extras.audit.released import a4, a5
from federatedscope_ggeur.extras.audit.told_numbers import a7
from federatedscope_ggeur.extras.audit.transcript import recorded, truth_of

SPARSE = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]
RAW = ["ggeur.space", "raw", "ggeur.steps", [1], "federate.total_round_num", 1]


def attacked(config, attack, *settings):
    going = Run(config(*SPARSE, *RAW, *settings))
    found = list(attack(recorded(going), truth_of(going), Clock(10)))
    return found[0], going


@pytest.mark.slow
def test_what_a_client_counts_for_says_what_is_withheld_unless_told_not_to(config):
    plain, _ = attacked(config, a7)
    assert plain.passed is False
    closed, going = attacked(config, a7, "ggeur.weight", "statistics")
    assert closed.passed is True
    for k, client in going.engine.clients.items():
        counts = going.held.counts[going.held.numbers.index(k)]
        assert client.aggregation_weight == counts[counts >= 5].sum()


@pytest.mark.slow
def test_withheld_rows_are_not_in_an_update_where_they_are_not_trained_on(config):
    """A5 is of classes held: withheld ones are then like absent ones."""
    settings = ["ggeur.steps", [], "train.batch_or_epoch", "batch"]
    settings += ["train.local_update_steps", 1, "dataloader.batch_size", 512]
    plain, _ = attacked(config, a4, *settings)
    assert plain.value > 0
    off = ["ggeur.privacy.train_withheld", False]
    closed, going = attacked(config, a4, *settings, *off)
    assert (closed.value, closed.passed) == (0.0, True)
    for client in going.engine.clients.values():
        _, labels = client.recipe.draw()
        assert (torch.bincount(labels, minlength=12)[labels] >= 5).all()
    by_bias, _ = attacked(config, a5, *settings, *off)
    plainly, _ = attacked(config, a5, *settings)
    assert by_bias.value < plainly.value
