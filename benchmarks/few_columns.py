"""The one-shot head, its mean with an MLP, and FedAvg, on rows of few columns.

    python benchmarks/few_columns.py [--seeds 5]

The data sets are those that scikit-learn brings. Classes are skewed: each class is
divided over the clients by a Dirichlet draw. 30% of the rows of each class are test
rows. All runs take the same number of mini-batches. Prints AVG and its standard error,
the difference from `ggeur.keep: best` paired by seed, and the ECE, all in %.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import warnings

import numpy as np
from sklearn import datasets

from federatedscope_ggeur import FederatedData, run

#: Name: the loader, the number of clients, and alpha of the Dirichlet draw.
SETS = {
    "wine, 13 columns": (datasets.load_wine, 3, 0.5),
    "breast cancer, 30": (datasets.load_breast_cancer, 5, 0.5),
    "digits, 64": (datasets.load_digits, 8, 0.3),
    "iris, 4": (datasets.load_iris, 3, 0.5),
}
CONFIG = "ggeur_own_embeddings"
RANDOM = {"ggeur.closed_form": "none", "ggeur.init": "random"}
WAYS = {
    "best": {"ggeur.keep": "best"},
    "average": {},
    "FedAvg": {**RANDOM, "ggeur.keep": "trained", "ggeur.steps": []},
}


def divided(labels: np.ndarray, clients: int, alpha: float, seed: int) -> np.ndarray:
    """The client of each row [n]."""
    generator, of_row = np.random.default_rng(1000 + seed), np.zeros(len(labels), int)
    for c in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == c))
        shares = generator.dirichlet([alpha] * clients)
        ends = (np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for client, part in enumerate(np.split(rows, ends)):
            of_row[part] = client
    return of_row


def test_rows(labels: np.ndarray, seed: int) -> np.ndarray:
    """30% of the rows of each class, as a mask [n]."""
    generator, chosen = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for c in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == c))
        chosen[rows[: round(0.3 * len(rows))]] = True
    return chosen


def shown(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.1f} ({error:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    for name, (load, clients, alpha) in SETS.items():
        rows, labels = load(return_X_y=True)
        scores: dict[str, list[float]] = {way: [] for way in WAYS}
        errors: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in seeds:
            data = FederatedData.from_arrays(
                rows,
                labels,
                divided(labels, clients, alpha, seed),
                test=test_rows(labels, seed),
            )
            for way, settings in WAYS.items():
                overrides = {**settings, "seed": seed}
                final = run(CONFIG, data, overrides=overrides).final
                scores[way].append(100 * final.avg)
                errors[way].append(100 * final.probabilities.after.ece)
        print(name)
        for way, found in scores.items():
            apart = [a - b for a, b in zip(found, scores["best"])]
            ece = statistics.mean(errors[way])
            print(f"  {way:8} {shown(found):12} {shown(apart):12} ECE {ece:.1f}")


if __name__ == "__main__":
    main()
