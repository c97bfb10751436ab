"""FedPG on two-class digits beside FedAvg and fixed noise; what its client step costs.

The bundled digits as images of one domain, cut into two parts a class and dealt two to
a client: 10 clients, 5 of them in a round. Every row has the same network, start, rows
and clients of each round; the size of a run was set beforehand and nothing is tuned on
the test digits. Early is the mean over the first rounds, late over the last five.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import fmean, median

import torch
from measure import interleave, ratio, report, standard_error

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import load_federated_data, run
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.methods.fedpg import FedPG
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.methods import LocalContext, LocalOutcome
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector
from federatedscope_ggeur.rng import torch_generator

CONFIG = Path(__file__).parents[1] / "scripts/example_configs/fedpg_cifar10.yaml"
DIGITS = [
    *("data.type", "bundled_digits@ggeur", "ggeur.bundled_digits.imaging", "False"),
    *("ggeur.encoder.image_size", "8", "ggeur.network.name", "digits_cnn"),
    *("data.splitter", "classes", "data.splitter_args", "[{'per_client': 2}]"),
    *("train.local_update_steps", "2", "dataloader.batch_size", "32"),
    *("ggeur.fedpg.batch_size", "32", "ggeur.vhl.batch_size", "32"),
]
METHODS = {
    "FedAvg": ("none",),
    "FedPG": ("fedpg",),
    "fixed noise": ("fedpg", "ggeur.fedpg.source", "noise"),
    "VHL, noise images": ("vhl",),
    "FedPG, generator that learns": (
        *("fedpg", "ggeur.fedpg.lr", "2e-3", "ggeur.fedpg.prototypes", "global"),
    ),
}
NORMS = ("batch", "group")
EARLY, LATE = 10, 5


def settings(method: str, norm: str, seed: int, args) -> list[str]:
    augmentation, *more = METHODS[method]
    return [
        *DIGITS,
        *("seed", str(seed), "ggeur.network.norm", norm),
        *("federate.total_round_num", str(args.rounds)),
        *("ggeur.fedpg.steps", str(args.steps), "ggeur.fedpg.generator_batch", "64"),
        *("ggeur.augmentation", augmentation, *more),
    ]


def curve(method: str, norm: str, seed: int, args) -> dict[str, str]:
    """Accuracy in percent, early and late, and of virtual images by the network."""
    cfg = load_config(CONFIG, settings(method, norm, seed, args))
    rounds = run(cfg, load_federated_data(cfg)).rounds
    accuracy = [100 * record.avg for record in rounds]
    share = [(record.details or {}).get("virtual_accuracy") for record in rounds]
    known = [100 * s for s in share if s is not None]
    early, late = fmean(accuracy[:EARLY]), fmean(accuracy[-LATE:])
    virtual = f"{fmean(known):.2f}" if known else ""
    return {"early": f"{early:.2f}", "late": f"{late:.2f}", "virtual": virtual}


def curves(args) -> list[dict[str, object]]:
    """Every run; one that stands in the file `args.runs` is not made again."""
    path, found = Path(args.runs), []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
    made = {(row["norm"], row["method"], int(row["seed"])) for row in found}
    for seed in range(args.seeds):
        for norm in args.norms:
            for method in METHODS:
                if (norm, method, seed) in made:
                    continue
                row = {"norm": norm, "method": method, "seed": seed}
                found.append({**row, **curve(method, norm, seed, args)})
                with path.open("a", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, [*row, "early", "late", "virtual"])
                    if not file.tell():
                        writer.writeheader()
                    writer.writerow(found[-1])
    return found


def accuracies(args) -> list[dict[str, object]]:
    """A row for each method and norm, over seeds."""
    runs, rows = curves(args), []
    for norm in args.norms:
        for method in METHODS:
            # Gains are paired by seed.
            both = [
                {int(r["seed"]): r for r in runs if (r["norm"], r["method"]) == wanted}
                for wanted in ((norm, method), (norm, "FedAvg"))
            ]
            seeds = sorted(set(both[0]) & set(both[1]))
            row = {"norm": norm, "method": method, "seeds": len(seeds)}
            for when in ("early", "late"):
                own, plain = ([float(b[k][when]) for k in seeds] for b in both)
                gain = [a - b for a, b in zip(own, plain)]
                row[f"{when} %"], row[f"{when} gain"] = map(with_error, (own, gain))
                row[f"{when} by seed"] = " ".join(f"{a:.1f}" for a in own)
            shares = [float(both[0][k]["virtual"] or "nan") for k in seeds]
            row["virtual accuracy %"] = f"{fmean(shares):.1f}".replace("nan", "")
            rows.append(row)
    return rows


def with_error(values: list[float]) -> str:
    """Mean and standard error."""
    error = standard_error(values)
    return f"{fmean(values):.1f} +- {error:.1f}"


class Client:
    """A client's round on digits of 32 pixels, all of it but the messages."""

    def __init__(self, method, norm: str, name: str, side: int, rows: int):
        rng = torch_generator(0, "benchmarks", "fedpg")
        size = rows, 3 * side**2
        self.features = torch.randint(256, size, generator=rng, dtype=torch.uint8)
        self.labels = torch.randint(10, (rows,), generator=rng)
        network = ModelSettings(other=NetworkSettings(name, norm=norm))
        self.model = build_model(size[1], 10, network)
        self.start = to_vector(self.model.reset(rng))
        optimizer = OptimizerSettings("SGD", 0.01)
        self.training = TrainingSettings(optimizer, batch_size=64, grad_clip=5.0)
        self.method = method
        images = torch.randint(256, (640, size[1]), generator=rng, dtype=torch.uint8)
        self.download = {"images": images}

    def round(self) -> None:
        hooks, data = None, (self.features, self.labels)
        if self.method is not None:
            context = LocalContext(
                client=1,
                round_number=2,
                model=self.model,
                broadcast=self.start,
                weights=self.start,
                download=self.download,
                init_broadcast={},
                state={},
                counts=torch.bincount(self.labels, minlength=10),
                min_samples=5,
                optimizer=self.training.optimizer,
                seed=0,
            )
            hooks = self.method.local(context)
        result = fit(self.model, self.start, *data, self.training, 0, hooks)
        if hooks is not None:
            hooks.finish(LocalOutcome(result.params, result.steps, *data))


def costs(args) -> list[dict[str, object]]:
    """How many times a plain client's round FedPG's takes, in one run."""
    rows = []
    for name, side in (("digits_cnn", 8), ("simple_cnn", 32), ("resnet18", 32)):
        norms = NORMS if name == "digits_cnn" else NORMS[:1]
        for norm in norms:
            size = 64 * (2 if name == "resnet18" else 20)
            pair = {"plain": None, "FedPG": FedPG()}
            functions = {
                label: Client(method, norm, name, side, size).round
                for label, method in pair.items()
            }
            repeats = 3 if name == "resnet18" else args.repeats
            seconds = interleave(functions, repeats)
            steps = size // 64
            rows.append(
                {
                    "network": name,
                    "norm": norm,
                    "pixels": side,
                    **{
                        f"{label} ms/step": f"{1e3 * median(own) / steps:.1f}"
                        for label, own in seconds.items()
                    },
                    "times as long": ratio(seconds["FedPG"], seconds["plain"]),
                    "at most": 2.6,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--steps", type=int, default=60, help="the generator's, a round"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="2 seeds, 6 rounds")
    parser.add_argument("--norms", nargs="+", default=NORMS)
    parser.add_argument(
        "--runs",
        default="networks_fedpg_runs.csv",
        help="each run, as it ends; those that stand there are not made again",
    )
    parser.add_argument("--cost", action="store_true", help="the step's cost alone")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.rounds, args.repeats = 2, 6, 2
    report(costs(args) if args.cost else accuracies(args), args.csv)


if __name__ == "__main__":
    main()
