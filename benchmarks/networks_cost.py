"""What training a network costs: a step of `fit` beside a plain torch loop with the
same network, batches and augmentation; and the memory of 100 clients of ResNet-18."""

from __future__ import annotations

import argparse
import resource
import time
from statistics import median

import torch
from measure import interleave, ratio, report
from torch.nn import functional as F

from federatedscope_ggeur import load_config
from federatedscope_ggeur.data import ClientData, Embeddings, FederatedData
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    load_vector,
    to_vector,
)
from federatedscope_ggeur.rng import torch_generator

CLASSES = 10
SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5}
#: Network, channels, side, batch, augmentation, rows of the one epoch.
CASES = (
    ("digits_cnn", 1, 8, 64, "none", 640),
    ("digits_cnn", 1, 8, 64, "crop_flip", 640),
    ("simple_cnn", 3, 32, 64, "crop_flip", 640),
    ("simple_cnn", 3, 32, 16, "none", 640),
    ("convnet5", 3, 32, 64, "crop_flip", 128),
    ("resnet18", 3, 32, 32, "crop_flip", 64),
)


def usual_loop(model, start, rows, labels, batch):
    """One epoch the usual way on the plain network; returns the weights."""
    load_vector(model, start)
    network, side = model.network, model.image.side
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), **SGD)
    generator = torch_generator(0, "augment")
    for first in range(0, len(rows), batch):
        x = model.prepare(rows[first : first + batch], generator)
        images = x.view(-1, model.image.channels, side, side)
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels[first : first + batch]).backward()
        optimizer.step()
    return to_vector(model)


def compare(name, channels, side, batch, augment, rows, repeats):
    generator = torch_generator(0, "benchmarks", "networks")
    dim = channels * side**2
    pixels = torch.randint(256, (rows, dim), dtype=torch.uint8, generator=generator)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    settings = ModelSettings(other=NetworkSettings(name, augment=augment))
    ours, theirs = (build_model(dim, CLASSES, settings) for _ in range(2))
    start = to_vector(ours.reset(generator))
    options = dict(SGD)
    rule = OptimizerSettings("SGD", options.pop("lr"), options)
    local = TrainingSettings(rule, batch_size=batch, shuffle=False)

    def fast():
        return fit(ours, start, pixels, labels, local, seed=0).weights

    def usual():
        return usual_loop(theirs, start, pixels, labels, batch)

    difference = (fast() - usual()).abs().max()
    seconds = interleave({"fit": fast, "loop": usual}, repeats)
    steps = -(-rows // batch)
    return {
        "network": name,
        "pixels": f"{channels}x{side}x{side}",
        "batch": batch,
        "augment": augment,
        "fit ms/step": f"{1e3 * median(seconds['fit']) / steps:.2f}",
        "loop ms/step": f"{1e3 * median(seconds['loop']) / steps:.2f}",
        "fit / loop": ratio(seconds["fit"], seconds["loop"]),
        "weights differ by": f"{difference:.1e}",
    }


def peak(clients: int, rounds: int) -> dict:
    """Peak memory of a federation of ResNet-18 in this process."""
    generator, shape = torch.Generator().manual_seed(0), (3, 8, 8)

    def rows(n: int) -> Embeddings:
        pixels = torch.randint(256, (n, 192), dtype=torch.uint8, generator=generator)
        return Embeddings(pixels, torch.arange(n) % CLASSES, "one", shape)

    held = tuple(ClientData(k, "one", rows(4), rows(2)) for k in range(1, clients + 1))
    names = tuple(map(str, range(CLASSES)))
    data = FederatedData(held, ("one",), (), names, "random pixels")
    cfg = load_config(
        {
            "federate": {"method": "ggeur", "total_round_num": rounds},
            "data": {"type": "bundled_digits@ggeur"},
            "dataloader": {"batch_size": 4},
            "ggeur": {
                "use": True,
                "steps": [],
                "encoder": {"name": "image"},
                "network": {"name": "resnet18"},
            },
        }
    )
    started = time.perf_counter()
    Run(cfg, data).follow(lambda record: None)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "clients": clients,
        "rounds": rounds,
        "peak GB": f"{used:.2f}",
        "seconds": f"{time.perf_counter() - started:.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("step", "memory"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="3 repeats, first case")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    if args.part == "memory":
        report([peak(args.clients, rounds=2)], args.csv)
        return
    cases, repeats = (CASES[:1], 3) if args.quick else (CASES, args.repeats)
    report([compare(*case, repeats) for case in cases], args.csv)


if __name__ == "__main__":
    main()
