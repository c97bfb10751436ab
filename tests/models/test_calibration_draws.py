"""CCVR: draws from the class statistics, and the last layer out and back in."""

import numpy as np
import pytest
import torch
from solving import stats

from federatedscope_ggeur.errors import ConfigError, StatisticsError
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import (
    LinearHead,
    ModelSettings,
    build_model,
    draw_features,
    load_vector,
    named_tensors,
    num_parameters,
    put_last_layer,
    take_last_layer,
)


@pytest.fixture
def statistics():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4)) + rng.normal(size=4)
    return stats(rows, np.array([1, 3, 4] * 20), 6)


class TestDraws:
    def test_stand_in_class_order(self, statistics):
        features, labels = draw_features(statistics, 5, seed=0)
        assert features.shape == (15, 4)
        assert features.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert labels.tolist() == [1] * 5 + [3] * 5 + [4] * 5

    def test_have_the_moments_of_their_class(self, statistics):
        size = 40_000
        features, labels = draw_features(statistics, size, seed=3)
        drawn = stats(features, labels, 6)
        for c in statistics.classes:
            wanted = statistics.covariance(c)
            scale = float(torch.linalg.eigvalsh(wanted)[-1])
            # Four standard errors: of a mean, and of an entry of a covariance.
            mean_error = (drawn.means[c] - statistics.means[c]).abs().max()
            assert mean_error <= 4 * (scale / size) ** 0.5
            error = (drawn.covariance(c) - wanted).abs().max()
            assert error <= 4 * scale * (2 / size) ** 0.5

    def test_do_not_leave_the_span_of_few_samples(self):
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(3, 10))
        features, _ = draw_features(stats(rows, [0, 0, 0], 1), 50, seed=0)
        centred = features.double().numpy() - rows.mean(axis=0)
        values = np.linalg.svd(centred, compute_uv=False)
        assert values[1] > 1e-2
        assert values[2] < 1e-5

    def test_a_class_of_one_sample_is_drawn_as_it_is(self):
        row = np.array([[1.0, 2.0, 3.0]])
        features, _ = draw_features(stats(row, [0], 1), 4, seed=0)
        assert torch.equal(features, torch.tensor(row).float().expand(4, 3))

    def test_depend_on_the_seed_and_the_class_alone(self, statistics):
        features, labels = draw_features(statistics, 5, seed=0)
        torch.manual_seed(9)
        again, _ = draw_features(statistics, 5, seed=0)
        assert torch.equal(again, features)
        other, _ = draw_features(statistics, 5, seed=1)
        assert not torch.equal(other, features)
        alone, _ = draw_features(statistics.restrict([3]), 5, seed=0)
        assert torch.equal(alone, features[labels == 3])

    def test_of_two_classes_alike_differ(self):
        rows = np.random.default_rng(2).normal(size=(9, 4))
        both = stats(np.vstack([rows, rows]), np.arange(18) // 9, 2)
        features, labels = draw_features(both, 5, seed=0)
        assert not torch.isclose(features[labels == 0], features[labels == 1]).any()

    def test_of_no_statistics_are_refused(self):
        with pytest.raises(StatisticsError, match="no features can be drawn"):
            draw_features(Statistics.empty(3, 4), 5, seed=0)


@pytest.fixture(params=[0, 7], ids=["linear", "mlp"])
def model(request):
    return build_model(4, 6, ModelSettings(hidden=request.param, dropout=0.5))


@pytest.fixture
def params(model):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_parameters(model), generator=generator)


CLASSES = [4, 1, 3]


class TestLastLayer:
    def test_gives_the_logits_of_its_classes(self, model, params):
        points = torch.randn(5, 4)
        frozen = model.at(params)
        layer = LinearHead(model.classifier.in_features, len(CLASSES))
        load_vector(layer, take_last_layer(model, params, CLASSES))
        found = layer(frozen.last_input(points))
        torch.testing.assert_close(found, frozen(points)[:, CLASSES])

    def test_replaces_its_rows_and_no_other_bit(self, model, params):
        before = params.clone()
        taken = take_last_layer(model, params, CLASSES).zero_()  # a copy
        new = torch.randn(taken.shape)
        after = put_last_layer(model, params, CLASSES, new)
        assert torch.equal(params, before)
        assert torch.equal(take_last_layer(model, after, CLASSES), new)
        others = [0, 2, 5]
        wanted = take_last_layer(model, before, others)
        assert torch.equal(take_last_layer(model, after, others), wanted)
        old = named_tensors(model, before)
        kept = [name for name in old if not name.startswith("classifier")]
        assert bool(kept) == hasattr(model, "hidden")
        for name in kept:
            assert torch.equal(named_tensors(model, after)[name], old[name])

    def test_of_a_linear_head_is_all_of_it(self):
        model = build_model(4, 3, ModelSettings())
        params = torch.randn(num_parameters(model))
        assert torch.equal(take_last_layer(model, params, range(3)), params)

    def test_of_a_mixture_head_is_refused(self):
        model = build_model(4, 6, ModelSettings(closed_form="mixture"))
        params = torch.zeros(num_parameters(model))
        with pytest.raises(ConfigError, match="no last layer"):
            take_last_layer(model, params, CLASSES)
