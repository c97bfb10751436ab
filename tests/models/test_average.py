"""The mean of two heads' probabilities, in plain numpy; as vectors and state dicts."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.models import LinearHead, MixtureHead, load_vector, to_vector
from federatedscope_ggeur.models.folding import AverageHead, averaged, recast


def test_is_the_mean_of_both_and_either_alone():
    generator = torch.Generator().manual_seed(0)
    linear = LinearHead(4, 3).reset(generator)
    mixture = MixtureHead.of_components(
        torch.randn(5, 4), torch.randn(5), torch.tensor([0, 0, 1, 2, 2]), 3
    )
    x = torch.randn(6, 4, generator=generator)
    wanted = AverageHead(4, 3)
    vectors = []
    for head, trained in ((mixture, False), (linear, True)):
        vector = recast(head, to_vector(head), wanted, trained)
        alone = wanted.at(vector)(x).softmax(dim=1)
        assert torch.allclose(alone, head(x).softmax(dim=1), atol=1e-6)
        cooled = wanted.at(vector)
        assert cooled.can_cool
        cooled.cool(2.0)
        divided = (head(x) / 2).softmax(dim=1)
        assert torch.allclose(cooled(x).softmax(dim=1), divided, atol=1e-6)
        vectors.append(vector)
    mean = averaged(wanted, *vectors)
    expected = np.mean([h(x).softmax(1).detach() for h in (mixture, linear)], axis=0)
    assert np.allclose(wanted.at(mean)(x).exp().detach(), expected, atol=1e-6)
    load_vector(wanted, mean)
    again = AverageHead(4, 3)
    again.load_state_dict(wanted.state_dict())
    assert torch.equal(to_vector(again), mean)
    assert not again.can_cool
    with pytest.raises(TypeError, match="AverageHead cannot be divided"):
        again.cool(2.0)
