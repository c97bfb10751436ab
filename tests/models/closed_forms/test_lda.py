"""LDA: the plain oracle, scikit-learn's, without any scatter, what is refused."""

import closed_form_oracle as oracle
import left_out_oracle
import numpy as np
import pytest
import torch
from closed_form_federations import components_of, make_federation
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from solving import (
    FEW,
    LABELS,
    OTHERS,
    OTHERS_LABELS,
    OTHERS_ROWS,
    ROWS,
    SHAPES,
    check_linear,
    refuse,
    singular,
    stats,
    weights_of,
)

from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import to_vector
from federatedscope_ggeur.models.closed_forms.fedcof import FedCOF
from federatedscope_ggeur.models.closed_forms.fisher import FisherSynthesis
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.mixture import (
    MixtureDiscriminant,
    log_shares,
)
from federatedscope_ggeur.models.closed_forms.ncm import NearestMean
from federatedscope_ggeur.rng import torch_generator


@pytest.mark.parametrize("rho", [None, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("priors", ["counts", "none"])
def test_equals_the_oracle(data, rho, priors):
    form = LinearDiscriminant(shrinkage=rho, priors=priors, rule="ledoit_wolf")
    check_linear(data, form, oracle.lda(*data, rho, priors == "counts"))
    report = form.solve(stats(*data, 5)).report
    wanted = oracle.common_covariance(*data, rho)[1]
    assert report["shrinkage"] == pytest.approx(wanted, rel=1e-9)
    rule = "ledoit-wolf (gaussian)" if rho is None else "set"
    assert report["shrinkage_rule"] == rule


def test_equals_scikit_learns():
    other = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3)
    other.fit(OTHERS_ROWS, OTHERS_LABELS)
    # There the common covariance is divided by N, here by N - C.
    n, log_priors = len(OTHERS_ROWS), np.log(other.priors_)
    scale = (n - 4) / n
    bias = scale * (other.intercept_ - log_priors) + log_priors
    found = weights_of(LinearDiscriminant(shrinkage=0.3).solve(OTHERS).model)
    oracle.assert_close(found[0], oracle.centred(scale * other.coef_))
    oracle.assert_close(found[1], oracle.centred(bias))


class TestWithoutScatter:
    points = np.array([[0.0, 0, 0], [4, 0, 0], [0, 2, 0]])

    @pytest.mark.parametrize("rho", [None, 0.5])
    @pytest.mark.parametrize("copies", [1, 4])
    def test_it_becomes_nearest_means(self, rho, copies):
        rows, labels = np.repeat(self.points, copies, axis=0), np.arange(3)
        statistics = stats(rows, labels.repeat(copies), 3)
        fitted = LinearDiscriminant(shrinkage=rho).solve(statistics)
        nearest = NearestMean().solve(statistics).model
        assert torch.equal(to_vector(fitted.model), to_vector(nearest))
        assert fitted.report["shrinkage"] == 1.0
        assert fitted.report["shrinkage_rule"].startswith("fallback: no scatter")

    def test_one_degree_of_freedom_leaves_the_spherical_covariance(self):
        rows = np.vstack([self.points, [[4.0, 0, 6]]])
        form = LinearDiscriminant(rule="ledoit_wolf")
        fitted = form.solve(stats(rows, np.array([0, 1, 2, 1]), 3))
        assert fitted.report["shrinkage"] == 1.0
        assert fitted.report["shrinkage_rule"].startswith("fallback: one degree")
        means = np.array([[0.0, 0, 0], [4, 0, 3], [0, 2, 0]])
        size = (3.0**2 + 3.0**2) / 3  # tr S0 / D
        oracle.assert_close(
            fitted.model.classifier.weight.double().numpy(),
            oracle.centred(means / size),
        )


class TestRefusals:
    @pytest.mark.parametrize("offset", [0.0, 1e3])
    def test_a_singular_common_covariance(self, offset):
        for statistics in singular(offset):
            form = LinearDiscriminant(shrinkage=0.0)
            refuse(form, statistics, "raise ggeur.lda.shrinkage")

    def test_too_few_samples_whatever_rounding_makes_of_their_rank(self):
        noise = 1e-7 * torch.eye(4).double()
        summed = FEW.to("pooled")
        rounded = Statistics.of_pooled(
            FEW.counts, FEW.means, scatter=summed.scatter() + noise
        )
        form = LinearDiscriminant(shrinkage=0.0)
        refuse(form, rounded, "raise ggeur.lda.shrinkage")

    def test_weights_beyond_float32(self):
        tiny = stats(1e-42 * ROWS, LABELS, 3)
        refuse(LinearDiscriminant(), tiny, "weights too large for float32")


# Nearest class means: the plain oracle.


def test_equals_the_oracle_ncm(data):
    check_linear(data, NearestMean(), oracle.ncm(*data))


# Ledoit and Wolf's rule beside scikit-learn's; refusals: test_lda.py.


@pytest.mark.parametrize(("n", "dim"), [(400, 20), (60, 20), (40, 80)])
def test_ledoit_and_wolfs_rule_on_gaussian_data(n, dim):
    """Both estimate one number, the share that brings S nearest to the truth."""
    rng = np.random.default_rng(n)
    mine, theirs = [], []
    for _ in range(20):
        rows = rng.normal(size=(n, dim)) * np.linspace(0.3, 2, dim)
        fitted = LinearDiscriminant(rule="ledoit_wolf").solve(
            stats(rows, np.zeros(n, int), 1)
        )
        mine.append(fitted.report["shrinkage"])
        theirs.append(ledoit_wolf(rows)[1])
    assert np.mean(mine) == pytest.approx(np.mean(theirs), rel=0.1)


# FedCOF: the plain oracle, the scale of embeddings, what it takes of statistics.


CLASSES = 4


def solve(form, rows, labels, clients):
    parts = components_of(rows, labels, clients, CLASSES)
    return form.solve(stats(rows, labels, CLASSES), parts)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strength", [0.01, 1.0])
@pytest.mark.parametrize("num_clients", [1, 3, 8])
def test_equals_the_oracle_fedcof(shape, strength, num_clients):
    rows, labels, clients = make_federation(SHAPES[shape], CLASSES, num_clients)
    solved = solve(FedCOF(strength=strength), rows, labels, clients)
    weights = left_out_oracle.fedcof_weights(rows, labels, clients, CLASSES, strength)
    kept = oracle.seen(labels)
    weight, bias = weights_of(solved.model)
    oracle.assert_close(weight[kept], oracle.centred(weights[kept]), 1e-5)
    assert not bias[kept].any()
    assert solved.report["strength"] == strength


def test_counts_and_means_are_all_it_takes():
    rows, labels, clients = make_federation(SHAPES["many rows"])
    assert FedCOF.NEEDS == "means"
    parts = components_of(rows, labels, clients, CLASSES)
    whole = stats(rows, labels, CLASSES).to("means")
    found = FedCOF().solve(whole, parts).model
    wanted = solve(FedCOF(), rows, labels, clients).model
    assert torch.equal(found.classifier.weight, wanted.classifier.weight)


# Synthesis in Fisher's space: the plain oracle on the same noise, and the draws.


def noise_of(labels, dim, samples, seed=0):
    return np.array(
        [
            torch.randn(
                samples,
                dim,
                dtype=torch.float64,
                generator=torch_generator(seed, "fisher", c),
            ).numpy()
            for c in oracle.seen(labels)
        ]
    )


@pytest.mark.parametrize(
    ("priors", "energy", "penalty"),
    [("counts", 0.995, None), ("none", 0.8, None), ("counts", 0.8, 0.1)],
)
def test_it_is_the_optimum_that_the_oracle_finds(data, priors, energy, penalty):
    rows, labels = data
    noise = noise_of(labels, rows.shape[1], 20)
    weighed = 1e-3 if penalty is None else penalty
    wanted = oracle.fisher(
        rows, labels, noise, 0.3, energy, 0.9, weighed, priors == "counts"
    )
    more = {} if penalty is None else {"penalty": penalty}
    form = FisherSynthesis(samples=20, energy=energy, priors=priors, **more)
    weight, bias = weights_of(form.solve(stats(rows, labels, 5)).model)
    kept = oracle.seen(labels)
    oracle.assert_close(weight[kept], oracle.centred(wanted[0]), 1e-5)
    oracle.assert_close(bias[kept], oracle.centred(wanted[1]), 1e-5)


@pytest.mark.parametrize("far", [{"spread": 1e6}, {"penalty": 1e15}])
def test_an_optimum_out_of_reach_is_refused_by_what_to_set(far):
    wanted = r"not reach its optimum; .*ggeur\.fisher\.spread.*ggeur\.fisher\.penalty"
    refuse(FisherSynthesis(**far), OTHERS, wanted)


@pytest.mark.slow
def test_draws_are_the_seeds_and_each_classs_own():
    form = FisherSynthesis(samples=5)
    first, again, other = (
        weights_of(form.solve(OTHERS, seed=seed).model)[0] for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


# The mixture discriminant: the plain oracle, LDA where there is one place.


def solve_mixture(form, rows, labels, clients, num_classes=CLASSES):
    parts = components_of(rows, labels, clients, num_classes)
    return form.solve(stats(rows, labels, num_classes), parts)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("components", ["domain", "client"])
@pytest.mark.parametrize(("g", "priors"), [(0.05, "counts"), (0.3, "none")])
def test_equals_the_oracle_mixture(shape, components, g, priors):
    rows, labels, clients = make_federation(SHAPES[shape])
    form = MixtureDiscriminant(components=components, shrinkage=g, priors=priors)
    solved = solve_mixture(form, rows, labels, clients)
    where = left_out_oracle.places(clients, clients % 2, components)
    # What is scored is what float32 holds, which far from the origin is coarse.
    points = torch.from_numpy(rows[:20] + 0.1).float()
    wanted = np.array(
        [
            left_out_oracle.mixture(
                rows, labels, where, x, CLASSES, g, priors == "counts"
            )
            for x in points.double().numpy()
        ]
    )
    found, kept = solved.model(points).double().numpy(), oracle.seen(labels)
    coarse = 1e-5 if abs(rows).max() < 100 else 2e-3
    oracle.assert_close(
        oracle.centred(found[:, kept].T), oracle.centred(wanted[:, kept].T), coarse
    )
    assert solved.report["components"] == components
    assert solved.report["component_count"] == len(
        {(c, k) for c, k in zip(labels.tolist(), where.tolist())}
    )


@pytest.mark.parametrize("priors", ["counts", "none"])
def test_of_one_place_it_is_lda(priors):
    rows, labels, _ = make_federation(SHAPES["classes nowhere"], 5)
    statistics, points = stats(rows, labels, 5), torch.from_numpy(rows).float()
    lda = LinearDiscriminant(shrinkage=0.3, priors=priors).solve(statistics).model
    form = MixtureDiscriminant(shrinkage=0.3, priors=priors)
    found = form.solve(statistics).model(points)
    oracle.assert_close(
        oracle.centred(found[:, oracle.seen(labels)].numpy().T),
        oracle.centred(lda(points)[:, oracle.seen(labels)].numpy().T),
        1e-5,
    )


def test_it_tells_classes_apart_that_domains_shift_onto_each_other():
    """Class 0 of one domain stands where class 1 of the other does."""
    rng = np.random.default_rng(0)
    labels, clients = np.repeat([0, 1, 0, 1], 50), np.repeat([1, 2], 100)
    means = np.array([[0.0, 0], [4, 0], [4, 8], [0, 8]]).repeat(50, axis=0)
    rows = means + rng.normal(size=(200, 2))
    mixture = solve_mixture(MixtureDiscriminant(), rows, labels, clients, 2).model
    lda = LinearDiscriminant().solve(stats(rows, labels, 2)).model
    points = torch.from_numpy(rows).float()
    right = [
        (model(points).argmax(dim=1).numpy() == labels).mean()
        for model in (mixture, lda)
    ]
    assert right[0] > 0.95
    assert right[1] < 0.8


def test_shares_of_components():
    weights, labels = torch.tensor([2.0, 6, 2]).double(), torch.tensor([0, 0, 1])
    found = log_shares(weights, labels, 2, "counts").exp()
    assert torch.allclose(found, torch.tensor([0.2, 0.6, 0.2]).double())
    found = log_shares(weights, labels, 2, "none").exp()
    assert torch.allclose(found, torch.tensor([0.25, 0.75, 1]).double())
