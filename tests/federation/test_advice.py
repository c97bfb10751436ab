"""What a run says at its start, from plain numbers."""

import math

import numpy as np
import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.start_notes import set_rows
from federatedscope_ggeur.data import ClientData, Embeddings
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, advice
from federatedscope_ggeur.federation.holdings import (
    Holdings,
    Withheld,
    augmented_rows,
    median_rows,
)
from federatedscope_ggeur.geometry import AugmentationSettings, TotalSizes

#: 3 of 4 pairs hold 4 rows, which is a tenth of all rows less a little.
FEW_PAIRS = [[4, 4], [4, 120]]


class TestWithheld:
    @pytest.mark.parametrize(
        ("counts", "threshold", "large"),
        [
            ([[5, 5]], 5, False),
            ([[4, 9], [9, 4]], 5, True),  # 8 of 26 rows
            ([[4, 90], [90, 90]], 5, False),  # 1 of 4 pairs, 4 of 274 rows
            (FEW_PAIRS, 5, True),  # 3 of 4 pairs
            ([[1, 90, 90]], 5, True),  # nobody speaks of class 0
            ([[0, 90, 90]], 5, False),  # nobody holds it
            ([[1, 1], [1, 1]], 1, False),
        ],
    )
    def test_a_note_where_much_is_withheld(self, counts, threshold, large):
        assert bool(advice.withheld_note(np.array(counts), threshold)) == large

    @pytest.mark.parametrize(
        ("counts", "lower"),
        [(FEW_PAIRS, 4), ([[1, 1]], 1), ([[2, 1], [90, 0], [3, 90]], 3)],
    )
    def test_it_names_the_highest_threshold_that_would_do(self, counts, lower):
        assert advice.better_threshold(np.array(counts), 5) == lower

    def test_a_domain_that_lacks_much_is_named(self):
        """Half of one domain's classes are withheld: 4% of all rows."""
        counts = np.array([[90, 90, 90, 90], [14, 14, 3, 3], [0, 0, 0, 0]])
        domains = ["art", "sketch", "unseen"]
        assert advice.withheld_note(counts, 5) == ""
        note = advice.withheld_note(counts, 5, domains)
        assert "sketch (17.6% of its rows, all of 2 of its 4 classes)" in note
        assert "art (" not in note
        assert "unseen" not in note
        assert advice.lacking_domains(counts, 3, domains) == []
        assert advice.better_threshold(counts, 5, domains) == 3

    def test_it_says_how_much_and_what_would_change_it(self):
        note = advice.withheld_note(np.array(FEW_PAIRS), 5)
        for said in (
            "5 withholds 3 of 4 (client, class) pairs (75%)",
            "12 of 132 rows (9.09%), all rows of 1 class among them",
            "min_samples 4, where",
        ):
            assert said in note
        assert "single rows" in advice.withheld_note(np.array([[1, 1]]), 5)


@pytest.mark.parametrize(
    ("sources", "prototypes", "pooled", "said"),
    [
        (["a", "b"], "domain", False, ""),
        ([1, 2], "client", False, ""),
        (["a", "a"], "domain", False, "there is only one domain"),
        (["a"], "domain", False, "there is only one client"),
        ([1], "client", False, "there is only one client"),
        (["a", "b"], "domain", True, "one client holds all rows"),
    ],
)
def test_step_2_needs_other_sources(sources, prototypes, pooled, said):
    note = advice.step2_note(sources, prototypes, pooled)
    assert said in note if said else note == ""


def sgd(lr, **options):
    return TrainingSettings(OptimizerSettings("SGD", lr, options))


class TestRate:
    @pytest.mark.parametrize(
        ("options", "step"),
        [({}, 0.4), ({"momentum": 0.9}, 4.0), ({"dampening": 0.5}, 0.2)],
    )
    def test_momentum_adds_steps_up(self, options, step):
        found = advice.descent_step(sgd(0.1, **options).optimizer, 4.0)
        assert found == pytest.approx(step)

    def test_so_few_steps_cannot_tell_even_the_clearest_classes_apart(self):
        # All of E|x|^2 tells the classes apart: ten times what is reckoned with.
        classes, lr = 20, 0.01
        x, weight = torch.eye(classes), torch.zeros(classes, classes)
        batches = math.floor(advice.fewest_batches(lr, classes) * 0.1)
        for _ in range(batches):
            p = (x @ weight.T).softmax(dim=1)
            weight -= lr * (p - x).T @ x / classes
        known = (x @ weight.T).softmax(dim=1).diagonal()
        assert known.max() < 0.5

    @pytest.mark.parametrize(
        ("settings", "square_norm", "classes", "batches", "said"),
        [
            (sgd(1.0), 10.0, 10, 100, ""),  # 1 / L
            (sgd(0.01), 10.0, 10, 2000, "a client takes 2000 mini-batches"),
            (sgd(0.01), 10.0, 10, 2400, ""),  # 10 ln 10 / 0.01 = 2303
            (sgd(0.001, momentum=0.9), 10.0, 10, 2400, ""),
            (sgd(9.9), 10.0, 10, 100, ""),
            (sgd(11.0), 10.0, 10, 100, "11 times the rate that the loss's curvatu"),
            (sgd(1.0), 10.0, 10, 0, ""),  # nothing is trained
            (sgd(1e-9), 0.0, 10, 100, ""),  # nobody holds rows
            (sgd(1e-9), 10.0, 1, 100, ""),
        ],
    )
    def test_a_note_where_the_rate_cannot_fit(
        self, settings, square_norm, classes, batches, said
    ):
        note = advice.rate_note(settings, square_norm, classes, batches)
        assert said in note if said else note == ""
        if said:
            assert "about 1 would fit" in note

    def test_no_note_on_steps_that_are_bounded_otherwise(self):
        adam = TrainingSettings(OptimizerSettings("Adam", 1e-9))
        clipped = TrainingSettings(OptimizerSettings("SGD", 100.0), grad_clip=1.0)
        for settings in (adam, clipped):
            assert advice.rate_note(settings, 10.0, 10, 10) == ""


def test_a_gpu_that_is_slower_is_told_with_both_times():
    few = advice.gpu_note([9] * 4, 20, 1e5, batched=True, share=1.0)
    assert "use_gpu" in few
    assert few.count(" s") >= 2
    paper = {"flops": 4.0 * 64 * 512 * 100, "rounds": 100, "share": 1.0}
    assert advice.gpu_note([31_250] * 10, batched=True, **paper) == ""
    assert advice.gpu_note([31_250] * 10, batched=False, **paper) == ""
    small = {"flops": 4.0 * 16 * 512 * 7, "rounds": 50, "share": 1.0}
    assert advice.gpu_note([4000] * 4, batched=True, **small) == ""
    assert advice.gpu_note([4000] * 4, batched=False, **small)
    assert advice.gpu_note([], batched=True, **small) == ""


# Who holds what: what is withheld, and the sizes of augmented sets beforehand.


COUNTS = np.array([[4, 0, 1], [5, 2, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("threshold", "pairs", "rows", "classes"),
    [(1, 0, 0, 0), (2, 1, 1, 1), (3, 2, 3, 2), (5, 3, 7, 2), (6, 4, 12, 3)],
)
def test_pairs_rows_and_classes_below_the_threshold(threshold, pairs, rows, classes):
    found = Withheld.from_counts(COUNTS, threshold)
    assert (found.pairs, found.rows, found.classes) == (pairs, rows, classes)
    assert (found.of_pairs, found.of_rows) == (4, 12)
    assert (found.pair_share, found.row_share) == (pairs / 4, rows / 12)


def test_of_nothing_nothing_is_withheld():
    found = Withheld.from_counts(np.zeros((2, 3), dtype=int), 5)
    assert (found.pair_share, found.row_share, found.classes) == (0, 0, 0)


def test_holdings_count_rows_and_lengths():
    def client(number, domain, features, labels, **more):
        rows = Embeddings(torch.tensor(features), torch.tensor(labels), domain, **more)
        return ClientData(number, domain, rows, rows.select([]))

    first = client(1, "a", [[3.0, 4.0], [0.0, 1.0]], [1, 1])
    second = client(2, "b", [[0.0, 2.0]], [0])
    held = Holdings.of([first, second], 3)
    assert held.counts.tolist() == [[0, 2, 0], [1, 0, 0]]
    assert held.mean_square_norm == (25 + 1 + 4) / 3
    one = held.among([2])
    assert (one.numbers, one.domains, one.mean_square_norm) == ((2,), ("b",), 4.0)
    assert held.among([]).mean_square_norm == 0
    shape = {"image_shape": (2, 1, 1)}
    pixels = client(3, "c", np.full((1, 2), 9, np.uint8), [0], **shape)
    assert Holdings.of([pixels], 3).mean_square_norm == 0


@pytest.mark.parametrize(
    ("rows", "median"), [([], 0), ([0, 0], 0), ([5], 5), ([9, 1, 0, 4], 4), ([2, 8], 2)]
)
def test_the_median_is_of_those_that_hold_rows(rows, median):
    assert median_rows(rows) == median


def test_with_sums_an_anchor_is_a_mean_over_enough_rows_of_others():
    """Class 0 alone has one: single clients are left with fewer rows of the rest."""
    counts = np.array([[4, 0, 1], [5, 2, 0], [0, 3, 0]])
    held = Holdings((1, 2, 3), ("a", "a", "b"), counts, np.ones(3))
    settings = AugmentationSettings((1, 2), TotalSizes(12, 5))
    assert augmented_rows(held, settings, 3, "others").tolist() == [
        (12 + 5) + 12,
        (12 + 5) + 12,
        5 + 12,
    ]


@pytest.mark.parametrize("steps", [[1], [1, 2]], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.privacy.min_samples", 3],
        ["ggeur.privacy.train_withheld", False],
        ["ggeur.privacy.min_samples", 1, "ggeur.prototypes", "client"],
        ["ggeur.sizes", "release", "ggeur.target_size_per_class", 25],
        [
            "ggeur.step1_size", -1, "ggeur.step2_size", -1,
            "ggeur.num_generated_per_sample", 2, "ggeur.num_generated_per_prototype", 3,
        ],
    ],
    ids=["paper", "withheld", "by_client", "release", "document"],
)  # fmt: skip
def test_sets_have_the_rows_that_are_foretold(config, steps, settings):
    uneven = ["federate.client_num", 5, "data.splitter_args", "[{'alpha': 0.3}]"]
    run = Run(config(*settings, *uneven, "ggeur.steps", steps))
    foretold = set_rows(run.settings, run.held).tolist()
    run.follow(lambda record: None)
    assert foretold == [run.engine.clients[k].recipe.rows for k in run.held.numbers]
