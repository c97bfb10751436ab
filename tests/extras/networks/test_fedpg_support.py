"""Of which classes a client sends FedPG's means: fast, beside test_fedpg.py."""

import pytest
from tiny_networks import data, federation

from federatedscope_ggeur.methods import AUGMENTATIONS


@pytest.mark.parametrize("more", [0, 1])
def test_a_class_of_as_many_rows_as_the_threshold_is_sent(more):
    small = {"images_per_class": 2, "noise_dim": 4, "steps": 1, "generator_batch": 4}
    method, (_, _, labels) = AUGMENTATIONS["fedpg"](**small), data()[1]
    counts = labels.bincount()
    threshold = int(counts.max()) + more
    run = federation(method, min_samples=threshold)
    update = run.round0().train(1)[0]
    assert update.upload["known"].tolist() == (counts >= threshold).tolist()
    assert update.upload["known"].any() == (not more)
