"""Heads in closed form: without any scatter, and what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import ClassStatistics, SummedStatistics
from federatedscope_ggeur.models import ClosedFormSettings, closed_form, to_vector

KINDS = ["ncm", "lda", "ridge", "qda"]


def stats(rows, labels, num_classes):
    return ClassStatistics.from_embeddings(
        torch.from_numpy(rows), torch.from_numpy(labels), num_classes
    )


class TestWithoutScatter:
    points = np.array([[0.0, 0, 0], [4, 0, 0], [0, 2, 0]])

    @pytest.mark.parametrize("rho", [None, 0.5])
    @pytest.mark.parametrize("copies", [1, 4])
    def test_lda_becomes_nearest_means(self, rho, copies):
        rows, labels = np.repeat(self.points, copies, axis=0), np.arange(3)
        statistics = stats(rows, labels.repeat(copies), 3)
        chosen = ClosedFormSettings("lda", shrinkage=rho)
        fitted = closed_form(statistics, chosen)
        nearest = closed_form(statistics, ClosedFormSettings("ncm")).model
        assert torch.equal(to_vector(fitted.model), to_vector(nearest))
        assert fitted.report["shrinkage"] == 1.0
        assert fitted.report["shrinkage_rule"].startswith("fallback: no scatter")

    def test_one_degree_of_freedom_leaves_the_spherical_covariance(self):
        rows = np.vstack([self.points, [[4.0, 0, 6]]])
        fitted = closed_form(
            stats(rows, np.array([0, 1, 2, 1]), 3), ClosedFormSettings("lda")
        )
        assert fitted.report["shrinkage"] == 1.0
        assert fitted.report["shrinkage_rule"].startswith("fallback: one degree")
        means = np.array([[0.0, 0, 0], [4, 0, 3], [0, 2, 0]])
        size = (3.0**2 + 3.0**2) / 3  # tr S0 / D
        oracle.assert_close(
            fitted.model.classifier.weight.double().numpy(),
            oracle.centred(means / size),
        )

    def test_a_class_of_one_sample_takes_the_common_covariance_in_qda(self):
        rows, labels = oracle.make_data(np.random.default_rng(2), 40, 3, 2)
        rows, labels = np.vstack([rows, [[5.0, 5, 5]]]), np.append(labels, 2)
        statistics = stats(rows, labels, 3)
        chosen = ClosedFormSettings("qda", shrinkage=0.1, class_shrinkage=0.0)
        model = closed_form(statistics, chosen).model
        common, _ = oracle.common_covariance(rows, labels, 0.1)
        step = np.array([1.0, 2.0, -1.0])
        at = torch.tensor(np.array([rows[-1], rows[-1] + step])).float()
        logits = model(at)[:, 2].double()
        wanted = step @ np.linalg.solve(common, step) / 2
        assert float(logits[0] - logits[1]) == pytest.approx(wanted, rel=1e-5)


class TestRefusals:
    rows, labels = oracle.make_data(np.random.default_rng(1), 30, 4, 3)
    enough = stats(rows, labels, 3)
    few = stats(rows[:4], np.array([0, 0, 1, 1]), 3)

    def refuse(self, statistics, message, kind="lda", **chosen):
        with pytest.raises(StatisticsError, match=message):
            closed_form(statistics, ClosedFormSettings(kind, **chosen))

    def test_an_unknown_kind(self):
        self.refuse(self.enough, "'svm'.*ncm, lda, qda, ridge", kind="svm")

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("form", [ClassStatistics, SummedStatistics])
    def test_no_samples(self, kind, form):
        self.refuse(form.empty(3, 4), f"no {kind} head of no samples", kind=kind)

    def test_qda_of_summed_statistics(self):
        summed = SummedStatistics.from_classes(self.enough)
        self.refuse(summed, "ggeur.statistics to class", kind="qda")

    @pytest.mark.parametrize(
        ("name", "value", "key"),
        [
            ("shrinkage", -0.1, "lda.shrinkage"),
            ("shrinkage", float("nan"), "lda.shrinkage"),
            ("class_shrinkage", 1.5, "qda.shrinkage"),
            ("alpha", 0.0, "ridge.alpha"),
        ],
    )
    def test_a_setting_out_of_range(self, name, value, key):
        self.refuse(self.enough, f"ggeur.{key} must", **{name: value})

    @pytest.mark.parametrize("kind", ["lda", "qda"])
    @pytest.mark.parametrize("offset", [0.0, 1e3])
    def test_a_singular_common_covariance(self, kind, offset):
        tripled = np.hstack([self.rows, self.rows @ np.ones((4, 1))]) + offset
        dead = np.hstack([self.rows, np.zeros((30, 1))]) + offset
        alone = stats(self.rows[:3], np.arange(3), 3)
        twins = [stats(rows, self.labels, 3) for rows in (tripled, dead)]
        for statistics in (self.few, alone, *twins):
            self.refuse(
                statistics, "raise ggeur.lda.shrinkage", kind=kind, shrinkage=0.0
            )

    def test_too_few_samples_whatever_rounding_makes_of_their_rank(self):
        noise = 1e-7 * torch.eye(4).double()
        summed = SummedStatistics.from_classes(self.few)
        rounded = SummedStatistics.from_moments(
            self.few.counts, self.few.means, scatter=summed.scatter() + noise
        )
        self.refuse(rounded, "raise ggeur.lda.shrinkage", shrinkage=0.0)
        covariances = {c: self.few.covariance(c) + noise for c in (0, 1)}
        by_class = ClassStatistics.from_moments(
            self.few.counts, self.few.means, covariances=covariances
        )
        self.refuse(by_class, "class 0 with 2", kind="qda", class_shrinkage=0.0)

    def test_a_singular_covariance_of_a_class(self):
        labels = np.where(np.arange(30) < 4, 2, self.labels % 2)
        self.refuse(
            stats(self.rows, labels, 3),
            "class 2 with 4 samples in 4 dim.*raise ggeur.qda.shrinkage",
            kind="qda",
            class_shrinkage=0.0,
        )

    def test_ridge_with_next_to_no_alpha(self):
        self.refuse(self.few, "raise ggeur.ridge.alpha", kind="ridge", alpha=1e-30)

    @pytest.mark.parametrize("kind", ["lda", "qda"])
    def test_weights_beyond_float32(self, kind):
        tiny = stats(1e-42 * self.rows, self.labels, 3)
        self.refuse(tiny, "beyond the range of float32", kind=kind)
