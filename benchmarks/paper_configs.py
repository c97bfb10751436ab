"""How long the configs of the paper's settings take at full size.

Each config is run for a few rounds on synthetic embeddings (see `workloads.py`) that
are as many, and divided as the config says, as those of its data set: D = 512, all
clients one after the other on one thread. The time of the whole run is that of round 0
and round 1, in which the augmented sets are drawn, and as many times the median of the
rounds after them as are left. Embedding the images comes on top, once.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from measure import report
from threadpoolctl import threadpool_limits
from workloads import DIM, OFFICE_HOME, embeddings

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import (
    ClientData,
    DataSet,
    Domain,
    Embeddings,
    FederatedData,
)
from federatedscope_ggeur.engines.run import Run, divide

EXAMPLES = Path(__file__).parent.parent / "scripts" / "example_configs"
#: Classes, and for each domain its images to train on and to test on; with one number
#: the config's `data.splits` divides them.
SHAPES = {
    "ggeur_digits": (
        10,
        {
            "mnist": (60_000, 10_000),
            "usps": (7_291, 2_007),
            "svhn": (73_257, 26_032),
            "syn": (479_400, 9_553),
        },
    ),
    "ggeur_pacs": (
        7,
        {
            "photo": (1_670,),
            "art_painting": (2_048,),
            "cartoon": (2_344,),
            "sketch": (3_929,),
        },
    ),
    "ggeur_office_caltech": (
        10,
        {"caltech": (1_123,), "amazon": (958,), "webcam": (295,), "dslr": (157,)},
    ),
    "ggeur_officehome": (
        65,
        dict(
            zip(
                ("art", "clipart", "product", "real_world"), ((n,) for n in OFFICE_HOME)
            )
        ),
    ),
    "ggeur_own_images": (20, dict.fromkeys("abcd", (2000,))),
    "ggeur_cifar10": (10, {"cifar10": (50_000, 10_000)}),
    "ggeur_cifar100": (100, {"cifar100": (50_000, 10_000)}),
    "ggeur_tiny_imagenet": (200, {"tiny_imagenet": (100_000, 10_000)}),
}


def synthetic(cfg, name: str) -> FederatedData:
    """Embeddings as many as the data set's, divided as `cfg` says."""
    classes, sizes = SHAPES[name]
    domains = tuple(
        _numbered(domain, _parts(images, cfg.data.splits), classes)
        for domain, images in sizes.items()
    )
    names = tuple(str(c) for c in range(classes))
    shares = divide(cfg, DataSet(domains, names, "synthetic"))
    counts = [
        torch.stack(
            [
                getattr(c, part).labels.bincount(minlength=classes)
                for c in shares.clients
            ]
        )
        for part in ("train", "test")
    ]
    made = zip(embeddings(counts[0], DIM, seed=0), embeddings(counts[1], DIM, seed=0))
    clients = tuple(
        ClientData(
            client.number,
            client.domain,
            Embeddings(*train, client.domain),
            Embeddings(*test, client.domain),
        )
        for client, (train, test) in zip(shares.clients, made)
    )
    return FederatedData(clients, shares.domains, (), names, "synthetic")


def _parts(images: tuple[int, ...], splits) -> tuple[int, int]:
    if len(images) == 2:
        return images
    return round(splits[0] * images[0]), round(splits[2] * images[0])


def _numbered(domain: str, parts: tuple[int, int], classes: int) -> Domain:
    """Rows without features, in all classes alike: enough to be divided."""
    rows = [
        Embeddings(torch.zeros(n, 1), torch.arange(n) % classes, domain) for n in parts
    ]
    return Domain(domain, *rows)


def measure(name: str, rounds: int) -> dict[str, object]:
    path = EXAMPLES / f"{name}.yaml"
    cfg = load_config(path)
    total = cfg.federate.total_round_num
    short = load_config(path, ["federate.total_round_num", str(rounds)])
    run = Run(short, synthetic(cfg, name))
    seconds: list[float] = []
    started = time.process_time()

    def watch(record) -> None:
        nonlocal started
        now = time.process_time()
        seconds.append(now - started)
        started = now

    run.follow(watch)
    clients = run.engine.clients.values()
    rows = [int(client.aggregation_weight) for client in clients]
    later = median(seconds[2:])
    whole = seconds[0] + seconds[1] + (total - 1) * later
    batch, epochs = cfg.dataloader.batch_size, cfg.train.local_update_steps
    steps = [epochs * -(-n // batch) for n in rows]
    return {
        "config": name,
        "own rows": sum(len(client.labels) for client in clients),
        "augmented rows": sum(rows),
        "of a client": f"{min(rows)}-{max(rows)}",
        "mini-batches of a client": f"{sum(steps) // len(steps)}",
        "round 0 s": f"{seconds[0]:.1f}",
        "round 1 s": f"{seconds[1]:.1f}",
        "later round s": f"{later:.1f}",
        "rounds": total,
        "whole run min": f"{whole / 60:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "configs", nargs="*", default=list(SHAPES), help="names of configs; all"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds run, 2 or more")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    if args.rounds < 2 or not set(args.configs) <= SHAPES.keys():
        parser.error(f"at least 2 rounds, of {', '.join(SHAPES)}")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        report([measure(name, args.rounds) for name in args.configs], args.csv)


if __name__ == "__main__":
    main()
