"""What a model of one's own gets from `Model`."""

import pytest
import torch
from torch import nn

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import Model, num_buffers, to_vector


class OwnHead(Model):
    """A linear layer on normalised embeddings."""

    def __init__(self, in_features, num_classes):
        super().__init__(in_features, num_classes)
        self.norm = nn.BatchNorm1d(in_features)
        self.classifier = nn.Linear(in_features, num_classes)

    def represent(self, features):
        return self.norm(features)

    def classify(self, representation):
        return self.classifier(representation)


@pytest.fixture
def head():
    torch.manual_seed(0)
    return OwnHead(5, 3).eval()


def test_it_is_a_model_of_embeddings(head):
    rows = torch.randn(4, 5)
    assert head.width == 5
    assert head.stage_widths == ()
    assert not head.takes_images
    assert head.prepare(rows, torch.Generator()) is rows
    assert head.norm_modules == [head.norm]
    assert int(head.norm_mask.sum()) == 20
    assert num_buffers(head) == 10


def test_it_has_no_stages(head):
    with head.stages_hooked(None):
        pass
    with (
        pytest.raises(ConfigError, match="OwnHead has no stages"),
        head.stages_hooked(lambda k, x: x),
    ):
        pass


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 30])
def test_rows_go_in_some_at_a_time(head, n):
    head.chunk_rows, sizes, rows = 8, [], torch.randn(n, 5)

    def run(x):
        sizes.append(len(x))
        return head(x)

    head.train()
    before = to_vector(head)
    found = head.in_chunks(run, rows)
    assert sum(sizes) == n
    assert max(sizes) <= 8
    assert head.training
    assert torch.equal(to_vector(head), before)
    assert not found.requires_grad
    head.eval()
    torch.testing.assert_close(found, head(rows))


def test_momentum_comes_back(head):
    head.norm.momentum = 0.3
    with head.frozen_statistics():
        assert head.norm.momentum == 0.0
    assert head.norm.momentum == 0.3
