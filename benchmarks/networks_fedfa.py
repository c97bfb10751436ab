"""FedFA+ and its ablations on digits with one domain left out; the cost of its layers.

Digits: the bundled 8 x 8 digits in four domains, three of which train, a client each,
while the fourth is scored; every domain is left out in turn. `digits_cnn` with
BatchNorm, 60 rounds of one epoch, batches of 32, SGD at one rate set beforehand, the
same for all rows; nothing is tuned. Accuracy in percent of the last five rounds' mean
on the domain that nobody trained on, mean over seeds with its standard error; gains
over FedAvg are paired by seed. "seen" is AVG over the domains that train.

Steps: CPU time of a client's round under each variant over that of plain `fit` on the
same network and rows, in turn, on one thread. `h` and `plus` have a term from the
second round on, which is what is timed, and at a round's end, which is one epoch here,
a forward pass over all rows besides. "layers" is the FFA layers alone: variant l, at
the default probability and acting on every batch.

    python benchmarks/networks_fedfa.py --steps
    python benchmarks/networks_fedfa.py --digits --raw FILE --csv FILE

A line of the raw CSV is one run, written as it ends; a run that is there already is not
run again. `--quick` shows that the script runs.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean, median

import torch
from measure import interleave, ratio, report, standard_error
from threadpoolctl import threadpool_limits

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.methods.fedfa_plus import FedFAPlus
from federatedscope_ggeur.extras.networks.methods.mixstyle import MixStyle
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.methods import (
    FedAvg,
    FedSAM,
    LocalContext,
    LocalOutcome,
    ServerContext,
)
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    num_trainable,
    to_vector,
)
from federatedscope_ggeur.rng import torch_generator

CONFIG = Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
DOMAINS = ("clean", "inverted", "blurred", "noisy")
VARIANTS = ("l", "h", "plus", "c", "c2", "r", "direct")
#: Row -> the keys that it sets.
ROWS = {
    "FedAvg": {},
    **{
        f"FedFA {variant}": {
            "ggeur.augmentation": "fedfa_plus",
            "ggeur.fedfa_plus.variant": variant,
        }
        for variant in VARIANTS
    },
    "MixStyle": {"ggeur.augmentation": "mixstyle"},
    "FedSAM": {"ggeur.base_method": "fedsam"},
}
COMMON = {
    "data.type": "bundled_digits@ggeur",
    "data.splits": [0.7, 0.0, 0.3],
    "data.splitter": "domain",
    "data.splitter_args": [],
    "federate.client_num": 3,
    "federate.total_round_num": 60,
    "dataloader.batch_size": 32,
    "train.local_update_steps": 1,
    "train.batch_or_epoch": "epoch",
    "train.optimizer.lr": 0.05,
    "train.optimizer.momentum": 0.9,
    "eval.freq": 1,
    "ggeur.augmentation": "none",
    "ggeur.encoder.name": "image",
    "ggeur.encoder.image_size": 8,
    "ggeur.network.name": "digits_cnn",
}
#: These first, in all seeds.
FIRST = [name for name in ROWS if name not in ("FedFA direct", "MixStyle", "FedSAM")]
QUICK = {"federate.total_round_num": 2}
KEY = ("unseen", "method", "seed")
FIELDS = (*KEY, "accuracy", "seen", "rounds", "seconds")

#: Network, side of its images, channels, rows, batch size.
STEPS = {
    "digits_cnn, batch norm, 1x8x8, batch 64": ("digits_cnn", "batch", 1, 8, 640, 64),
    "digits_cnn, group norm, 1x8x8, batch 32": ("digits_cnn", "group", 1, 8, 640, 32),
    "convnet5, batch norm, 3x32x32, batch 32": ("convnet5", "batch", 3, 32, 128, 32),
    "resnet18, batch norm, 3x32x32, batch 10": ("resnet18", "batch", 3, 32, 40, 10),
}
METHODS = {
    "FedAvg": FedAvg(),
    "FedFA layers": FedFAPlus("l"),
    "FedFA layers on every batch": FedFAPlus("l", probability=1.0),
    "FedFA r": FedFAPlus("r"),
    "FedFA h": FedFAPlus("h"),
    "FedFA plus": FedFAPlus(),
    "MixStyle": MixStyle(),
    "FedSAM": FedSAM(),
}
AT_MOST = {"FedFA layers": 1.5}


class Client:
    """A client's second round: `round` is all of it but the messages."""

    def __init__(self, method, name, norm, channels, side, rows, batch):
        generator = torch_generator(0, "benchmarks", "networks")
        pixels = channels * side * side
        self.rows = torch.randint(256, (rows, pixels), generator=generator).byte()
        self.labels = torch.randint(10, (rows,), generator=generator)
        settings = ModelSettings(other=NetworkSettings(name, norm=norm))
        self.model = build_model(pixels, 10, settings).reset(generator)
        self.start = to_vector(self.model)
        optimizer = OptimizerSettings("SGD", 0.01, {"momentum": 0.9})
        self.training = TrainingSettings(optimizer, batch_size=batch)
        self.method = method
        self.state = method.initial_state(
            self.start, ServerContext(1, self.model, {1: 1.0}, {}, 0)
        )
        if "histogram" in self.state:
            histogram = torch.rand_like(self.state["histogram"])
            self.state["histogram"] = histogram / histogram.sum(dim=1, keepdim=True)

    def round(self):
        context = LocalContext(
            client=1, round_number=2, model=self.model,
            broadcast=self.start[: num_trainable(self.model)], weights=self.start,
            download=self.method.download(self.state), init_broadcast={}, state={},
            counts=torch.bincount(self.labels, minlength=10), min_samples=5,
            optimizer=self.training.optimizer, seed=0,
        )  # fmt: skip
        hooks, data = self.method.local(context), (self.rows, self.labels)
        result = fit(self.model, self.start, *data, self.training, 0, hooks)
        if hooks.finish is not None:
            weights = result.weights
            params = weights[: len(result.params)]
            hooks.finish(LocalOutcome(params, result.steps, *data, weights=weights))


def steps(repeats: int) -> list[dict]:
    """A row for each network and method."""
    found = []
    for label, case in STEPS.items():
        clients = {name: Client(method, *case) for name, method in METHODS.items()}
        functions = {name: client.round for name, client in clients.items()}
        seconds = interleave(functions, repeats)
        count = -(-case[4] // case[5])
        found += [
            {
                "network": label,
                "method": name,
                "ms/step": f"{1e3 * median(seconds[name]) / count:.2f}",
                "times FedAvg": ratio(seconds[name], seconds["FedAvg"]),
                "at most": AT_MOST.get(name, ""),
            }
            for name in functions
        ]
    return found


def digits(raw: Path, seeds: int, quick: bool) -> Iterator[dict]:
    """The line of each run, old or new."""
    done = {}
    if raw.exists():
        with raw.open(newline="", encoding="utf-8") as file:
            done = {tuple(row[k] for k in KEY): row for row in csv.DictReader(file)}
    others = [name for name in ROWS if name not in FIRST]
    for names, seed, unseen in product((FIRST, others), range(seeds), DOMAINS):
        for name in names:
            key = unseen, name, str(seed)
            if key not in done:
                done[key] = dict(zip(KEY, key)) | one_run(unseen, name, seed, quick)
                append(done[key], raw)
            yield done[key]


def one_run(unseen: str, name: str, seed: int, quick: bool) -> dict[str, str]:
    keys = {
        **COMMON,
        **ROWS[name],
        "ggeur.unseen_domains": [unseen],
        "seed": seed,
        **(QUICK if quick else {}),
    }
    cfg = load_config(CONFIG, [str(part) for pair in keys.items() for part in pair])
    started = time.process_time()
    with threadpool_limits(1):
        results = Run(cfg).follow(lambda record: None)
    last = results.rounds[-5:]
    return {
        "accuracy": f"{100 * fmean(r.accuracy[unseen] for r in last):.4f}",
        "seen": f"{100 * fmean(r.avg for r in last):.4f}",
        "rounds": str(len(results.rounds)),
        "seconds": f"{time.process_time() - started:.1f}",
    }


def append(line: dict[str, str], raw: Path) -> None:
    raw.parent.mkdir(parents=True, exist_ok=True)
    new = not raw.exists()
    with raw.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(line)


def summary(lines: list[dict]) -> list[dict[str, object]]:
    """A row for each method: each unseen domain, their mean, and AVG of the seen."""
    found: dict[str, dict[tuple[str, str], dict]] = {}
    for line in lines:
        found.setdefault(line["method"], {})[line["unseen"], line["seed"]] = line
    plain = found["FedAvg"]
    table = []
    for name, runs in found.items():
        row: dict[str, object] = {"method": name}
        for domain in DOMAINS:
            row[domain] = spread([v for (d, _), v in runs.items() if d == domain])
        both = [key for key in runs if key in plain]
        row["mean"] = f"{fmean(float(runs[k]['accuracy']) for k in runs):.2f}"
        row["over FedAvg"] = paired(runs, plain, both)
        row["seen"] = f"{fmean(float(runs[k]['seen']) for k in runs):.2f}"
        row["runs"] = len(runs)
        table.append(row)
    return table


def spread(lines: list[dict]) -> str:
    return with_error([float(line["accuracy"]) for line in lines])


def paired(runs, plain, keys) -> str:
    """The mean over domains of a seed's difference, over seeds."""
    by_seed: dict[str, list[float]] = {}
    for key in keys:
        gain = float(runs[key]["accuracy"]) - float(plain[key]["accuracy"])
        by_seed.setdefault(key[1], []).append(gain)
    return with_error([fmean(gains) for gains in by_seed.values()])


def with_error(values: list[float]) -> str:
    error = standard_error(values)
    return f"{fmean(values):.2f} +- {error:.2f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", action="store_true", help="the cost of a step")
    parser.add_argument("--digits", action="store_true", help="one domain left out")
    parser.add_argument("--raw", type=Path, help="a line for each run of --digits")
    parser.add_argument("--csv", help="where the table goes")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.steps == args.digits:
        parser.error("--steps or --digits, one of them")
    if args.steps:
        report(steps(2 if args.quick else args.repeats), args.csv)
        return
    if args.raw is None:
        parser.error("--digits needs --raw FILE")
    report(summary(list(digits(args.raw, args.seeds, args.quick))), args.csv)


if __name__ == "__main__":
    main()
