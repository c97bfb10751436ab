"""Heads in closed form: the plain oracle, every partition, classes left out."""

import json

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from federatedscope_ggeur.geometry import ClassStatistics, SummedStatistics
from federatedscope_ggeur.models import (
    ClosedFormSettings,
    ModelSettings,
    build_model,
    closed_form,
    load_vector,
    to_vector,
)

LINEAR = ["ncm", "lda", "ridge"]
KINDS = [*LINEAR, "qda"]


def stats(rows, labels, num_classes):
    return ClassStatistics.from_embeddings(
        torch.from_numpy(rows), torch.from_numpy(labels), num_classes
    )


def weights_of(model):
    layer = model.classifier
    return layer.weight.double().numpy(), layer.bias.double().numpy()


SHAPES = {
    "many rows": {"n": 200, "dim": 6},
    "more dimensions than rows": {"n": 25, "dim": 40},
    "far from the origin": {"n": 200, "dim": 6, "offset": 1e3},
    "far, with few rows": {"n": 25, "dim": 40, "offset": 1e3},
    "classes nowhere": {"n": 60, "dim": 6, "missing": (0, 3)},
    "one dimension": {"n": 60, "dim": 1},
}


@pytest.fixture(params=SHAPES)
def data(request):
    rows, labels = oracle.make_data(
        np.random.default_rng(7), num_classes=5, **SHAPES[request.param]
    )
    # And one class with one sample, one with two.
    keep = ~np.isin(labels, (2, 4))
    keep[:3], labels[:3] = True, [4, 2, 2]
    return rows[keep], labels[keep]


class TestAgainstTheOracle:
    def check_linear(self, data, chosen, wanted):
        rows, labels = data
        statistics = stats(rows, labels, 5)
        kept = oracle.seen(labels)
        for held in (statistics, SummedStatistics.from_classes(statistics)):
            weight, bias = weights_of(closed_form(held, chosen).model)
            oracle.assert_close(weight[kept], oracle.centred(wanted[0]))
            oracle.assert_close(bias[kept], oracle.centred(wanted[1]))

    def test_nearest_means(self, data):
        self.check_linear(data, ClosedFormSettings("ncm"), oracle.ncm(*data))

    @pytest.mark.parametrize("rho", [None, 0.05, 0.3, 1.0])
    @pytest.mark.parametrize("priors", [True, False])
    def test_lda(self, data, rho, priors):
        chosen = ClosedFormSettings("lda", shrinkage=rho, priors=priors)
        self.check_linear(data, chosen, oracle.lda(*data, rho, priors))
        report = closed_form(stats(*data, 5), chosen).report
        wanted = oracle.common_covariance(*data, rho)[1]
        assert report["shrinkage"] == pytest.approx(wanted, rel=1e-9)
        rule = "ledoit-wolf (gaussian)" if rho is None else "set"
        assert report["shrinkage_rule"] == rule

    @pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
    def test_ridge(self, data, alpha):
        chosen = ClosedFormSettings("ridge", alpha=alpha)
        self.check_linear(data, chosen, oracle.ridge(*data, alpha))

    @pytest.mark.parametrize("g", [0.1, 0.5, 1.0])
    @pytest.mark.parametrize(("rho", "priors"), [(None, True), (0.2, False)])
    def test_qda(self, data, g, rho, priors):
        rows, labels = data
        chosen = ClosedFormSettings(
            "qda", shrinkage=rho, class_shrinkage=g, priors=priors
        )
        model = closed_form(stats(rows, labels, 5), chosen).model
        # What is scored is what float32 holds, which far from the origin is coarse.
        points = torch.from_numpy(rows[:20] + 0.1).float()
        scores = oracle.qda(rows, labels, points.double().numpy(), rho, g, priors)
        found = model(points)[:, oracle.seen(labels)].double().numpy()
        coarse = 1e-5 if abs(rows).max() < 100 else 1e-3
        oracle.assert_close(oracle.centred(found.T), oracle.centred(scores.T), coarse)


class TestAgainstOtherLibraries:
    rows, labels = oracle.make_data(np.random.default_rng(11), 300, 5, 4)
    statistics = stats(rows, labels, 4)

    def test_lda(self):
        other = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3)
        other.fit(self.rows, self.labels)
        # There the common covariance is divided by N, here by N - C.
        n, log_priors = len(self.rows), np.log(other.priors_)
        scale = (n - 4) / n
        bias = scale * (other.intercept_ - log_priors) + log_priors
        chosen = ClosedFormSettings("lda", shrinkage=0.3)
        found = weights_of(closed_form(self.statistics, chosen).model)
        oracle.assert_close(found[0], oracle.centred(scale * other.coef_))
        oracle.assert_close(found[1], oracle.centred(bias))

    def test_qda_by_scipys_densities(self):
        scores = []
        for c in range(4):
            members = self.rows[self.labels == c]
            density = multivariate_normal(members.mean(axis=0), np.cov(members.T))
            scores.append(density.logpdf(self.rows) + np.log(len(members) / 300))
        chosen = ClosedFormSettings("qda", class_shrinkage=0.0)
        model = closed_form(self.statistics, chosen).model
        found = model(torch.from_numpy(self.rows).float()).double().numpy()
        oracle.assert_close(
            oracle.centred(found.T), oracle.centred(np.array(scores)), 1e-5
        )

    def test_ridge(self):
        extended = np.hstack([self.rows, np.ones((len(self.rows), 1))])
        other = Ridge(alpha=2.5, fit_intercept=False, solver="cholesky")
        other.fit(extended, np.eye(4)[self.labels])
        chosen = ClosedFormSettings("ridge", alpha=2.5)
        found = weights_of(closed_form(self.statistics, chosen).model)
        oracle.assert_close(found[0], oracle.centred(other.coef_[:, :-1]))
        oracle.assert_close(found[1], oracle.centred(other.coef_[:, -1]))

    @pytest.mark.parametrize(("n", "dim"), [(400, 20), (60, 20), (40, 80)])
    def test_ledoit_and_wolfs_rule_on_gaussian_data(self, n, dim):
        """Both estimate one number, the share that brings S nearest to the truth."""
        rng = np.random.default_rng(n)
        mine, theirs = [], []
        for _ in range(20):
            rows = rng.normal(size=(n, dim)) * np.linspace(0.3, 2, dim)
            fitted = closed_form(
                stats(rows, np.zeros(n, int), 1), ClosedFormSettings("lda")
            )
            mine.append(fitted.report["shrinkage"])
            theirs.append(ledoit_wolf(rows)[1])
        assert np.mean(mine) == pytest.approx(np.mean(theirs), rel=0.1)


@st.composite
def federations(draw):
    """Rows, labels, each row's client, and how many clients there are."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_classes = draw(st.integers(1, 6))
    missing = (0,) if num_classes > 2 and draw(st.booleans()) else ()
    rows, labels = oracle.make_data(
        rng,
        draw(st.sampled_from([1, 3, 15, 60, 250])),
        draw(st.sampled_from([1, 2, 8, 24])),
        num_classes,
        draw(st.sampled_from([0.0, 1e3])),
        missing,
    )
    if num_classes > 1:  # the last class shrinks to one sample
        labels[labels == num_classes - 1] = num_classes - 2
        labels[0] = num_classes - 1
    clients = draw(st.sampled_from([1, 10, 100]))
    beta = draw(st.sampled_from([0.01, 0.1, 0.5]))
    owner = np.zeros(len(rows), int)
    for c in range(num_classes):
        shares = rng.dirichlet([beta] * clients)
        owner[labels == c] = rng.choice(clients, size=(labels == c).sum(), p=shares)
    return rows, labels, owner, clients, num_classes


CHOSEN = [
    ClosedFormSettings("ncm"),
    ClosedFormSettings("lda"),
    ClosedFormSettings("lda", shrinkage=0.1, priors=False),
    ClosedFormSettings("ridge"),
    ClosedFormSettings("ridge", alpha=0.01),
    ClosedFormSettings("qda"),
    ClosedFormSettings("qda", shrinkage=0.1, class_shrinkage=0.1),
]


@settings(max_examples=60, deadline=None)
@given(federations())
def test_every_partition_gives_the_head_of_the_pooled_rows(drawn):
    rows, labels, owner, clients, num_classes = drawn
    parts = [
        stats(rows[owner == k], labels[owner == k], num_classes) for k in range(clients)
    ]
    pooled, merged = stats(rows, labels, num_classes), sum(parts)
    summed = sum(SummedStatistics.from_classes(part) for part in parts)
    for chosen in CHOSEN:
        wanted = list(closed_form(pooled, chosen).model.parameters())
        for held in (merged, summed) if chosen.kind != "qda" else (merged,):
            fitted = closed_form(held, chosen)
            assert fitted.report["left_out"] == num_classes - len(pooled.classes)
            for mine, theirs in zip(fitted.model.parameters(), wanted):
                oracle.assert_close(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_class_left_out_never_wins(kind, scale, offset, kept):
    rng = np.random.default_rng(3)
    missing = tuple(c for c in range(6) if c % 2 == 0 or c >= 2 * kept)
    rows, labels = oracle.make_data(rng, 40, 8, 6, offset, missing)
    fitted = closed_form(stats(rows, labels, 6), ClosedFormSettings(kind))
    assert fitted.report["left_out"] == 6 - kept
    points = offset + scale * rng.normal(size=(2000, 8))
    points[0] = rows[labels == labels.min()].mean(axis=0)
    winners = fitted.model(torch.from_numpy(points).float()).argmax(dim=1)
    assert set(winners.tolist()) <= set(oracle.seen(labels))


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_is_frozen_and_the_report_plain(kind):
    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    fitted = closed_form(stats(rows, labels, 4), ClosedFormSettings(kind))
    assert not fitted.model.training
    for parameter in fitted.model.parameters():
        assert parameter.dtype == torch.float32
        assert not parameter.requires_grad
    assert json.loads(json.dumps(fitted.report)) == fitted.report
    known = {"rows": 50, "classes": 3, "left_out": 1}
    assert known.items() <= fitted.report.items()


def test_offsets_of_the_quadratic_head_are_centred():
    """So that float32 keeps their differences where log-determinants are large."""
    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    model = closed_form(stats(1e-9 * rows, labels, 3), ClosedFormSettings("qda")).model
    assert float(model.offsets.sum()) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vector_loads_into_the_head_that_settings_build(kind):
    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    model = closed_form(stats(rows, labels, 3), ClosedFormSettings(kind)).model
    built = build_model(4, 3, ModelSettings(quadratic=kind == "qda"))
    load_vector(built, to_vector(model))
    points = torch.from_numpy(rows).float()
    assert torch.equal(built(points), model(points))


@pytest.mark.parametrize("kind", LINEAR)
def test_centring_keeps_every_probability(kind):
    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    chosen = ClosedFormSettings(kind, shrinkage=0.2)
    arguments = {"ncm": (), "lda": (0.2,), "ridge": (1.0,)}[kind]
    weight, bias = getattr(oracle, kind)(rows, labels, *arguments)
    model = closed_form(stats(rows, labels, 3), chosen).model
    found = torch.softmax(model(torch.from_numpy(rows).float()), dim=1).numpy()
    np.testing.assert_allclose(found, oracle.softmax(rows @ weight.T + bias), atol=1e-5)
