"""Heads of one upload under differential privacy: accuracy at each epsilon.

Settings are fixed beforehand; nothing is chosen on the rows that are scored. A draw is
one seed: of the projection, of the division into rows to train on and to test, of the
public rows, and of the noise. The noise of K clients is drawn as one of the same
standard deviation.

    python benchmarks/differential_privacy.py --caltech FOLDER --pacs FOLDER [--rival]

With ``--rival`` it is DP-GD instead, at each of four rates; the noise is central.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.data.transforms import projected, transform_rows
from federatedscope_ggeur.extras.differential_privacy.noise_aware import (
    believed,
    bridge,
)
from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    CLIP,
    GRID_BITS,
    MOMENTS,
    ROW_BITS,
    SPREAD,
    PublicRows,
    ReleasePlan,
    cut_rows,
    discrete_gaussian,
    seeded_words,
    unit_rows,
)
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.rng import numpy_generator

EPSILONS, DELTA = (1.0, 2.0, 4.0, 8.0), 1e-5
DIM = 256
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
Rows = tuple[Tensor, Tensor]
#: Of the rival: rounds, its rates, and the share of mu^2 that its centre has.
ROUNDS, RATES, _MEAN_SHARE = 20, (2.0, 4.0, 8.0, 16.0), 0.02


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


def caltech_with_text(folder: Path, seed: int):
    """The same, but the public rows stand for text features, which count like a row."""
    train, tests, public = caltech_with_public(folder, seed)
    features = torch.nn.functional.normalize(public.means, dim=1).float()
    return train, tests, ClassTexts(features, 1.0, prior=1.0)


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
    plan: ReleasePlan, rows: Rows, tests: dict[str, Rows], known, seed: int
) -> float:
    """In %, the mean over domains, of the head of one release."""
    words = seeded_words(numpy_generator(seed, "noise", int(plan.epsilon)))

    def noise(stage: str) -> np.ndarray:
        whole = _Whole(**vars_of(plan))
        return whole.noise(stage, words)

    counts, centre = plan.centre(plan.moments(*rows) + noise(MOMENTS))
    total = plan.spread(*rows, centre) + noise(SPREAD)
    release, guess = plan.released(counts, centre, total), ()
    if isinstance(known, ClassTexts):
        guess = known.guess(partial(bridge, release))[0], known.prior
    else:
        release = replace(release, public=known)
    weight, bias = believed(release, *guess).head()
    hits = [
        float(((x.double() @ weight.T + bias).argmax(dim=1) == y).double().mean())
        for x, y in tests.values()
    ]
    return 100 * fmean(hits)


def rival(
    plan: ReleasePlan, rows: Rows, tests: dict[str, Rows], seed: int
) -> dict[str, float]:
    """DP-GD, by rate: accuracy of a linear head trained by full batches under noise.

    In each of `ROUNDS` rounds every row gives its gradient, cut to length 1, and the
    sum gets noise of standard deviation ``sqrt(ROUNDS) / mu``. All rounds together are
    mu-GDP. 2% of mu^2 go to the mean that rows are centred by, as in our release. Rows
    are divided by their number, which is public here.
    """
    x, y = rows
    own = plan.mu * (1 - _MEAN_SHARE) ** 0.5
    words = seeded_words(numpy_generator(seed, "rival", int(plan.epsilon)))
    steps = math.ceil(ROUNDS**0.5 / own * 2**GRID_BITS)
    size = plan.num_classes * (plan.dim + 1)
    drawn = discrete_gaussian(ROUNDS * size, steps, words) / 2**GRID_BITS
    noise = torch.from_numpy(drawn).reshape(ROUNDS, plan.num_classes, plan.dim + 1)
    centre = _rivals_centre(plan, x, words)
    z = _inputs(x, centre)
    found = {}
    for rate in RATES:
        weight = torch.zeros(plan.num_classes, plan.dim + 1, dtype=torch.float64)
        speed = torch.zeros_like(weight)
        for one in noise:
            speed = 0.9 * speed + (_gradient(weight, z, y) + one) / len(y)
            weight = weight - rate * speed
        hits = [
            float(((_inputs(x, centre) @ weight.T).argmax(dim=1) == y).double().mean())
            for x, y in tests.values()
        ]
        found[f"rate {rate:g}"] = 100 * fmean(hits)
    return found


def _gradient(weight: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """The sum of the rows' gradients, each cut to length 1 and rounded to a grid."""
    residual = (z @ weight.T).softmax(dim=1)
    residual[torch.arange(len(y)), y] -= 1
    length = residual.norm(dim=1) * z.norm(dim=1)
    residual = residual / length.clamp(min=1.0)[:, None]
    # Rounded towards zero entry by entry, so no row gets longer.
    total = torch.zeros(weight.shape, dtype=torch.float64)
    for r, own in zip(residual.split(256), z.split(256)):
        steps = r[:, :, None] * own[:, None, :] * 2**ROW_BITS
        total += steps.trunc().sum(dim=0)
    return total / 2**ROW_BITS


def _rivals_centre(plan: ReleasePlan, x: Tensor, words) -> Tensor:
    share = _MEAN_SHARE**0.5
    steps = math.ceil(2**GRID_BITS / (plan.mu * share))
    noise = discrete_gaussian(plan.dim, steps, words) / 2**GRID_BITS
    total = torch.from_numpy(unit_rows(x).sum(axis=0) / 2**ROW_BITS + noise)
    return total / len(x)


def _inputs(x: Tensor, centre: Tensor) -> Tensor:
    """Rows about the centre, cut to CLIP and divided by it, and a constant."""
    cut = cut_rows(unit_rows(x), centre.numpy()) / (2**ROW_BITS * CLIP)
    return torch.cat([torch.from_numpy(cut), torch.full((len(x), 1), 0.3)], dim=1)


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
    parser.add_argument("--rival", action="store_true", help="DP-GD in place of ours")
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
            ("Caltech with that row as its text", caltech_with_text, *own, 1, 0),
        ]
    if options.pacs:
        own = options.pacs, 7, True
        settings += [("PACS 30%", pacs, *own, 1, 0), ("PACS 30%", pacs, *own, 4, 1)]
    for name, make, folder, classes, square, clients, spared in settings:
        if options.rival and (clients > 1 or make not in (caltech, pacs)):
            continue
        found: dict[tuple[float, str], list[float]] = {}
        for seed in range(options.draws):
            rows, tests, known = make(folder, seed)
            for epsilon in EPSILONS:
                dim = rows[0].shape[1]
                plan = ReleasePlan(
                    classes, dim, epsilon, DELTA, square, clients, spared
                )
                ours = "central" if clients == 1 else f"{clients} clients; t = {spared}"
                reached = (
                    rival(plan, rows, tests, seed)
                    if options.rival
                    else {ours: accuracy(plan, rows, tests, known, seed)}
                )
                for how, value in reached.items():
                    found.setdefault((epsilon, how), []).append(value)
        for (epsilon, how), values in found.items():
            spread = stdev(values) if len(values) > 1 else 0.0
            yield (
                f"{name},{how},{epsilon:g},{fmean(values):.1f},{spread:.1f},"
                f"{len(values)}"
            )


if __name__ == "__main__":
    main()
