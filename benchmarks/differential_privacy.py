"""Heads of one upload under differential privacy: accuracy at each epsilon.

Settings are fixed beforehand; nothing is chosen on the rows that are scored. A draw is
one seed: of the projection, of the division into rows to train on and to test, of the
public rows, and of the noise. The noise of K clients is drawn as one of the same
standard deviation.

    python benchmarks/differential_privacy.py --caltech FOLDER --pacs FOLDER
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.data.transforms import projected, transform_rows
from federatedscope_ggeur.geometry.discrete_gaussian import seeded_words
from federatedscope_ggeur.geometry.noisy_release import (
    GRID_BITS,
    MOMENTS,
    SPREAD,
    PublicRows,
    ReleasePlan,
)
from federatedscope_ggeur.models.closed_forms.noise_aware import believed
from federatedscope_ggeur.rng import numpy_generator

EPSILONS, DELTA = (1.0, 2.0, 4.0, 8.0), 1e-5
DIM = 256
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
Rows = tuple[Tensor, Tensor]


def read(path: Path, seed: int) -> Rows:
    """Rows of a file as a run prepares them, and their labels."""
    with np.load(path) as held:
        features = torch.from_numpy(held["features"].astype(np.float32))
        labels = torch.from_numpy(held["labels"])
    return transform_rows(features, projected(DIM, seed)), labels


def caltech(folder: Path, seed: int) -> tuple[Rows, dict[str, Rows], None]:
    """Rows to train on, and to test."""
    return read(folder / "train.npz", seed), {"": read(folder / "test.npz", seed)}, None


def caltech_with_public(folder: Path, seed: int):
    """The same, but one row of each class to test is public and not scored."""
    train, tests, _ = caltech(folder, seed)
    x, y = tests[""]
    drawn = numpy_generator(seed, "public rows")
    own = [int(drawn.choice(np.flatnonzero(y.numpy() == c))) for c in range(100)]
    rest = np.setdiff1d(np.arange(len(y)), own)
    public = PublicRows.of(x[own], y[own], 100)
    return train, {"": (x[rest], y[rest])}, public


def pacs(folder: Path, seed: int) -> tuple[Rows, dict[str, Rows], None]:
    """Of each domain 30% of the 70% of rows to train on; the other 30% to test."""
    parts, tests = [], {}
    for name in DOMAINS:
        x, y = read(folder / f"{name}.npz", seed)
        order = numpy_generator(seed, "pacs", name).permutation(len(y))
        inside = round(0.7 * len(y))
        kept = order[: int(0.3 * inside)]
        parts.append((x[kept], y[kept]))
        tests[name] = x[order[inside:]], y[order[inside:]]
    features, labels = (torch.cat(one) for one in zip(*parts))
    return (features, labels), tests, None


def accuracy(
    plan: ReleasePlan, rows: Rows, tests: dict[str, Rows], public, seed: int
) -> float:
    """In %, the mean over domains, of the head of one release."""
    words = seeded_words(numpy_generator(seed, "noise", int(plan.epsilon)))

    def noise(stage: str) -> np.ndarray:
        whole = _Whole(**vars_of(plan))
        return whole.noise(stage, words)

    counts, centre = plan.centre(plan.moments(*rows) + noise(MOMENTS))
    total = plan.spread(*rows, centre) + noise(SPREAD)
    release = replace(plan.released(counts, centre, total), public=public)
    weight, bias = believed(release).head()
    hits = [
        float(((x.double() @ weight.T + bias).argmax(dim=1) == y).double().mean())
        for x, y in tests.values()
    ]
    return 100 * fmean(hits)


class _Whole(ReleasePlan):
    """Draws the noise of all clients at once."""

    def steps(self, block: str) -> int:
        return round(self.total(block) * 2**GRID_BITS)

    def total(self, block: str) -> float:
        return super().steps(block) / 2**GRID_BITS * self.clients**0.5


def vars_of(plan: ReleasePlan) -> dict:
    names = ("num_classes", "dim", "epsilon", "delta", "square", "clients", "spared")
    return {name: getattr(plan, name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--caltech", type=Path)
    parser.add_argument("--pacs", type=Path)
    parser.add_argument("--draws", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("setting,noise,epsilon,mean,sd,draws")
    for line in lines(options):
        print(line, flush=True)


def lines(options) -> Iterator[str]:
    settings = []
    if options.caltech:
        own = options.caltech, 100, False
        settings += [
            ("Caltech", caltech, *own, 1, 0),
            ("Caltech", caltech, *own, 10, 3),
            ("Caltech with one public row a class", caltech_with_public, *own, 1, 0),
        ]
    if options.pacs:
        own = options.pacs, 7, True
        settings += [("PACS 30%", pacs, *own, 1, 0), ("PACS 30%", pacs, *own, 4, 1)]
    for name, make, folder, classes, square, clients, spared in settings:
        found: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
        for seed in range(options.draws):
            rows, tests, public = make(folder, seed)
            for epsilon in EPSILONS:
                dim = rows[0].shape[1]
                plan = ReleasePlan(
                    classes, dim, epsilon, DELTA, square, clients, spared
                )
                found[epsilon].append(accuracy(plan, rows, tests, public, seed))
        noise = "central" if clients == 1 else f"{clients} clients; t = {spared}"
        for epsilon, values in found.items():
            spread = stdev(values) if len(values) > 1 else 0.0
            yield (
                f"{name},{noise},{epsilon:g},{fmean(values):.1f},{spread:.1f},"
                f"{len(values)}"
            )


if __name__ == "__main__":
    main()
