"""Time of a local step under each method, beside FedAvg's on the same path.

A step's time is that of a client's whole round, what the method does once in it
included, over its mini-batches. Methods that add to the gradient in the space of
weights are beside plain FedAvg. Methods that add a term to the loss are beside FedAvg
whose gradient comes from autograd, as theirs does. So are the baseline augmentations;
FedFA, which changes batches and nothing else, is beside plain FedAvg, without a limit.
"""

from __future__ import annotations

import argparse
from statistics import median

import torch
from measure import interleave, ratio, report
from torch.nn import functional as F
from workloads import DIM

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.methods import (
    FedAvg,
    FedDyn,
    FedFA,
    FedGen,
    FedMix,
    FedNTD,
    FedProto,
    FedProx,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    Moon,
    Scaffold,
    ServerContext,
)
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector
from federatedscope_ggeur.rng import torch_generator

CLASSES = 65
OPTIMIZER = OptimizerSettings("SGD", 0.01, {"momentum": 0.9, "weight_decay": 1e-5})
#: Head's hidden units and batch size.
CASES = ((0, 16), (0, 64), (256, 16), (256, 64))


class ByAutograd(FedAvg):
    """FedAvg without the gradient by hand."""

    def local(self, context):
        def cross_entropy(model, features, labels):
            return F.cross_entropy(model(features), labels)

        return LocalHooks(objective=cross_entropy)


#: Each method, what it is beside, and how many times as long a step may take.
METHODS = {
    "FedProx": (FedProx(0.1), "FedAvg", 1.5),
    "SCAFFOLD": (Scaffold(), "FedAvg", 1.5),
    "FedDyn": (FedDyn(0.5), "FedAvg", 1.5),
    "MOON": (Moon(), "FedAvg by autograd", 3.0),
    "FedNTD": (FedNTD(), "FedAvg by autograd", 3.0),
    "FedProto": (FedProto(), "FedAvg by autograd", 3.0),
    "FedMix": (FedMix(), "FedAvg by autograd", 3.0),
    "FedGen": (FedGen(), "FedAvg by autograd", 3.0),
    "FedFA": (FedFA(), "FedAvg", ""),
}


class Client:
    """A client's second round: `round` is all of it but the messages."""

    def __init__(self, method, hidden: int, batch: int, rows: int):
        generator = torch_generator(0, "benchmarks", "methods")
        self.features = torch.randn(rows, DIM, generator=generator)
        self.labels = torch.randint(CLASSES, (rows,), generator=generator)
        self.model = build_model(DIM, CLASSES, ModelSettings(hidden))
        self.start = to_vector(self.model.reset(generator))
        self.training = TrainingSettings(OPTIMIZER, batch_size=batch)
        self.method, self.state = method, {}
        server = ServerContext(1, self.model, {1: 1.0}, {}, 0)
        self.server_state = method.initial_state(self.start, server)
        self.server_state = {
            name: torch.ones_like(t) if name in ("known", "seen") else t
            for name, t in self.server_state.items()
        }
        self.init_broadcast = {}
        share = method.init_upload(self.features, self.labels, self.context())
        self.init_broadcast = method.aggregate_init({1: share}) if share else {}
        _, self.state = self.round()

    def context(self) -> LocalContext:
        return LocalContext(
            client=1,
            round_number=2,
            model=self.model,
            broadcast=self.start,
            download=self.method.download(self.server_state),
            init_broadcast=self.init_broadcast,
            state=self.state,
            counts=torch.bincount(self.labels, minlength=CLASSES),
            min_samples=1,
            optimizer=OPTIMIZER,
            seed=0,
        )

    def round(self):
        hooks = self.method.local(self.context())
        data = self.features, self.labels
        result = fit(self.model, self.start, *data, self.training, 0, hooks)
        if hooks.finish is None:
            return {}, {}
        return hooks.finish(LocalOutcome(result.params, result.steps, *data))


def compare(hidden: int, batch: int, rows: int, repeats: int) -> list[dict]:
    """A row of the table for each method."""
    plain = {"FedAvg": FedAvg(), "FedAvg by autograd": ByAutograd()}
    everyone = {**plain, **{name: method for name, (method, *_) in METHODS.items()}}
    functions = {
        name: Client(method, hidden, batch, rows).round
        for name, method in everyone.items()
    }
    seconds = interleave(functions, repeats)
    steps = -(-rows // batch)

    def micro(name):
        return f"{1e6 * median(seconds[name]) / steps:.0f}"

    return [
        {
            "head": f"MLP {hidden}" if hidden else "linear",
            "batch": batch,
            "method": name,
            "us/step": micro(name),
            "beside": beside,
            "its us/step": micro(beside),
            "times as long": ratio(seconds[name], seconds[beside]),
            "at most": limit,
        }
        for name, (_, beside, limit) in METHODS.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3250, help="rows of the one epoch")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="3 repeats, first case")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    cases, repeats = (CASES[:1], 3) if args.quick else (CASES, args.repeats)
    rows = [row for case in cases for row in compare(*case, args.rows, repeats)]
    report(rows, args.csv)


if __name__ == "__main__":
    main()
