"""Speed of a training step, beside a per-item Dataset and DataLoader with autograd."""

from __future__ import annotations

import argparse
from statistics import median

import torch
from measure import interleave, ratio, report
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from workloads import DIM

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    load_vector,
    to_vector,
)
from federatedscope_ggeur.rng import torch_generator

CLASSES = 65
OPTIMIZERS = {
    "SGD": {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5},
    "Adam": {"lr": 0.001},
}
#: Head's hidden units, batch size, optimiser; the first is the one that must hold.
CASES = (
    (0, 16, "SGD"),
    (0, 64, "SGD"),
    (0, 16, "Adam"),
    (256, 16, "SGD"),
    (256, 64, "SGD"),
)


class Items(Dataset):
    """Rows handed out one by one, as a data set of images would."""

    def __init__(self, features, labels):
        self.features, self.labels = features, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.features[i], self.labels[i]


def usual_loop(model, start, items, batch, optimizer, shuffle):
    """One epoch the usual way; returns the weights."""
    load_vector(model, start)
    model.train()
    make = getattr(torch.optim, optimizer)
    optimizer = make(model.parameters(), **OPTIMIZERS[optimizer])
    for x, y in DataLoader(items, batch_size=batch, shuffle=shuffle):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return to_vector(model)


def compare(hidden: int, batch: int, optimizer: str, rows: int, repeats: int):
    generator = torch_generator(0, "benchmarks", "training")
    features = torch.randn(rows, DIM, generator=generator)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    items = Items(features, labels)
    settings = ModelSettings(hidden)
    ours, theirs = (build_model(DIM, CLASSES, settings) for _ in range(2))
    start = to_vector(ours.reset(generator))
    options = dict(OPTIMIZERS[optimizer])
    rule = OptimizerSettings(optimizer, options.pop("lr"), options)

    def fast(shuffle=True):
        local = TrainingSettings(rule, batch_size=batch, shuffle=shuffle)
        return fit(ours, start, features, labels, local, seed=0).params

    def usual(shuffle=True):
        return usual_loop(theirs, start, items, batch, optimizer, shuffle)

    difference = (fast(shuffle=False) - usual(shuffle=False)).abs().max()
    seconds = interleave({"fit": fast, "loop": usual}, repeats)
    steps = -(-rows // batch)
    return {
        "head": f"MLP {hidden}" if hidden else "linear",
        "batch": batch,
        "optimiser": optimizer,
        "fit us/step": f"{1e6 * median(seconds['fit']) / steps:.0f}",
        "loop us/step": f"{1e6 * median(seconds['loop']) / steps:.0f}",
        "times faster": ratio(seconds["loop"], seconds["fit"]),
        "weights differ by": f"{difference:.1e}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3250, help="rows of the one epoch")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="3 repeats, first case")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    cases, repeats = (CASES[:1], 3) if args.quick else (CASES, args.repeats)
    report([compare(*case, args.rows, repeats) for case in cases], args.csv)


if __name__ == "__main__":
    main()
