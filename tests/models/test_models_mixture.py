"""The mixture head: its logits, its vector of any length, its file."""

import pytest
import torch
from safetensors.torch import load, save

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import (
    LinearHead,
    MixtureHead,
    load_vector,
    to_vector,
)

DIM, CLASSES = 3, 2
POINTS = torch.randn(7, DIM, generator=torch.Generator().manual_seed(0))


def head():
    generator = torch.Generator().manual_seed(1)
    weight, bias = (torch.randn(n, generator=generator) for n in ((5, DIM), (5,)))
    return MixtureHead.of_components(
        weight, bias, torch.tensor([0, 1, 0, 0, 1]), CLASSES
    )


def test_logits_are_log_sums_over_the_components_of_a_class():
    model = head()
    scores = (POINTS @ model.weight.T + model.bias).exp()
    wanted = torch.stack(
        [scores[:, [0, 2, 3]].sum(dim=1), scores[:, [1, 4]].sum(dim=1)], dim=1
    ).log()
    torch.testing.assert_close(model(POINTS), wanted)


def test_large_scores_stay_finite():
    model = head()
    assert torch.isfinite(model(1e6 * POINTS)).all()


def test_one_component_a_class_is_a_linear_head():
    linear = LinearHead(DIM, CLASSES).reset(torch.Generator().manual_seed(2))
    assert torch.equal(MixtureHead.of_linear(linear)(POINTS), linear(POINTS))


def test_it_takes_a_vector_of_any_number_of_components():
    model, empty = head(), MixtureHead(DIM, CLASSES)
    vector = to_vector(model)
    assert len(vector) == 5 * (DIM + 2) + 1  # and the scale
    assert torch.equal(empty.at(vector)(POINTS), model(POINTS))
    assert len(to_vector(empty)) == CLASSES * (DIM + 2) + 1
    load_vector(empty, vector)
    assert torch.equal(to_vector(empty), vector)


@pytest.mark.parametrize("size", [5 * (DIM + 2), DIM + 3, 0])
def test_other_vectors_are_refused(size):
    with pytest.raises(ConfigError, match=f"{size} parameters do not fit a mix"):
        MixtureHead(DIM, CLASSES).at(torch.zeros(size))


def test_its_file_is_read_into_a_new_one():
    model, other = head(), MixtureHead(DIM, CLASSES)
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(other(POINTS), model(POINTS))


def test_a_file_from_before_temperatures_has_the_scale_1():
    model, other = head(), MixtureHead(DIM, CLASSES)
    old = {k: v for k, v in model.state_dict().items() if k != "scale"}
    other.load_state_dict(old)
    assert torch.equal(other(POINTS), model(POINTS))


def test_it_is_not_trained():
    model = head()
    with pytest.raises(ConfigError, match="no last layer to train"):
        _ = model.classifier
    with pytest.raises(ConfigError, match="no last layer to train"):
        model.last_input(POINTS)
    assert not model.reset().weight.any()
