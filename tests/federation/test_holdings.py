"""Who holds what: what is withheld, and the sizes of augmented sets beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.start_notes import set_rows
from federatedscope_ggeur.data import ClientData, Embeddings
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation.holdings import Holdings, Withheld, median_rows

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
    def client(number, domain, features, labels):
        rows = Embeddings(torch.tensor(features), torch.tensor(labels), domain)
        return ClientData(number, domain, rows, rows.select([]))

    first = client(1, "a", [[3.0, 4.0], [0.0, 1.0]], [1, 1])
    second = client(2, "b", [[0.0, 2.0]], [0])
    held = Holdings.of([first, second], 3)
    assert held.counts.tolist() == [[0, 2, 0], [1, 0, 0]]
    assert held.mean_square_norm == (25 + 1 + 4) / 3
    one = held.among([2])
    assert (one.numbers, one.domains, one.mean_square_norm) == ((2,), ("b",), 4.0)
    assert held.among([]).mean_square_norm == 0


@pytest.mark.parametrize(
    ("rows", "median"), [([], 0), ([0, 0], 0), ([5], 5), ([9, 1, 0, 4], 4), ([2, 8], 2)]
)
def test_the_median_is_of_those_that_hold_rows(rows, median):
    assert median_rows(rows) == median


@pytest.mark.parametrize("steps", [[1], [1, 2]], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.privacy.min_samples", 3],
        ["ggeur.privacy.min_samples", 1, "ggeur.prototypes", "client"],
        ["ggeur.sizes", "release", "ggeur.target_size_per_class", 25],
        [
            "ggeur.step1_size", -1, "ggeur.step2_size", -1,
            "ggeur.num_generated_per_sample", 2, "ggeur.num_generated_per_prototype", 3,
        ],
    ],
    ids=["paper", "by_client", "release", "document"],
)  # fmt: skip
def test_sets_have_the_rows_that_are_foretold(config, steps, settings):
    uneven = ["federate.client_num", 5, "data.splitter_args", "[{'alpha': 0.3}]"]
    run = Run(config(*settings, *uneven, "ggeur.steps", steps))
    foretold = set_rows(run.settings, run.held).tolist()
    run.follow(lambda record: None)
    assert foretold == [run.engine.clients[k].recipe.rows for k in run.held.numbers]
