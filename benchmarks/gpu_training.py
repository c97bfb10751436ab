"""Part `training` of `gpu.py`: heads on embeddings, all clients of a round at once.

Three tables in one: a step of several clients, beside as many steps of a plain torch
loop; rounds of many small clients, with messages and aggregation; and the paper's
settings at full size on synthetic embeddings (`workloads.py`), from the first message
to the last score.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import paper_configs
import torch
from gpu_bench import Bench
from torch import nn
from workloads import DIM

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.exchanges.training.batched.fit import (
    Member,
    fit_group,
)
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector

SGD = OptimizerSettings("SGD", 0.01, {"momentum": 0.9, "weight_decay": 1e-5})
#: Clients, classes, batch, rows of a client.
STEPS = ((10, 100, 64, 64_000), (4, 65, 16, 16_000), (4, 7, 16, 16_000))
#: A name of `paper_configs.SHAPES`, and the seconds that it may take.
WHOLE = (
    ("ggeur_pacs", 40.0),
    ("ggeur_digits", 60.0),
    ("ggeur_officehome", 70.0),
    ("ggeur_cifar100", 160.0),
)


def rows(bench: Bench) -> Iterator[dict[str, object]]:
    for clients, classes, batch, own in STEPS:
        if bench.small:
            own = 10 * batch
        yield steps(bench, clients, classes, batch, own)
    yield from many(bench)
    for name, seconds in WHOLE:
        if not bench.small and bench.has(seconds, name):
            yield whole(bench, name)


def _row(case: str, what: str, ours: str, beside: str = "") -> dict[str, object]:
    return {"case": case, "what": what, "ours": ours, "plain torch loop": beside}


def _members(
    bench: Bench, clients: int, classes: int, batch: int, own: int
) -> list[Member]:
    """Clients whose sets lie one below the other, as those of a run do."""
    device = bench.device
    features = torch.randn(clients * own, DIM, device=device)
    labels = torch.randint(classes, (clients * own,), device=device)
    settings = TrainingSettings(SGD, 1, "epoch", batch, device=device)
    sets = zip(features.split(own), labels.split(own))
    return [Member(TrainingSet(*one), settings, k) for k, one in enumerate(sets)]


def steps(
    bench: Bench, clients: int, classes: int, batch: int, own: int
) -> dict[str, object]:
    """Microseconds of a step of all clients."""
    members = _members(bench, clients, classes, batch, own)
    head = build_model(DIM, classes, ModelSettings())
    start = to_vector(head).to(bench.device)
    layer = nn.Linear(DIM, classes).to(bench.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=SGD.lr, **SGD.options)
    few = 50

    def plain() -> None:
        """Some steps of one client."""
        (x, y, _), loss = members[0].rows, nn.CrossEntropyLoss()
        order = torch.randperm(own, device=bench.device)
        for rows in order.split(batch)[:few]:
            optimizer.zero_grad()
            loss(layer(x[rows]), y[rows]).backward()
            optimizer.step()

    calls = {"ours": lambda: fit_group(head, start, members), "plain": plain}
    seconds = bench.in_turns(calls, 3)
    count = -(-own // batch)
    ours = min(seconds["ours"]) / count
    one = min(seconds["plain"]) / min(few, count)
    case = f"{clients} clients, C {classes}, batches of {batch}"
    return _row(case, "us a step", f"{1e6 * ours:.1f}", f"{1e6 * clients * one:.0f}")


def many(bench: Bench) -> Iterator[dict[str, object]]:
    """Client-rounds a second: 1,000 clients of 50 rows, of which 50 are drawn."""
    drawn, classes, batch, own = 50, 10, 10, 50
    head = build_model(DIM, classes, ModelSettings())
    start = to_vector(head).to(bench.device)
    case = "1,000 x 50 rows, 50 drawn, C 10"
    repeats = 2 if bench.small else 50
    # Rounds of many steps, so that a step alone is measured.
    members = _members(bench, drawn, classes, batch, own * repeats)
    fit_group(head, start, members)
    seconds = bench.seconds(lambda: fit_group(head, start, members))
    rate = repeats * drawn / seconds
    yield _row(case, "client-rounds a second, steps", f"{rate:,.0f}")
    members = _members(bench, drawn, classes, batch, own)
    fit_group(head, start, members)
    seconds = bench.seconds(
        lambda: [fit_group(head, start, members) for _ in range(repeats)]
    )
    rate = repeats * drawn / seconds
    yield _row(case, "client-rounds a second, rounds", f"{rate:,.0f}")
    rounds = 5 if bench.small else 300
    run = _crowd(bench, rounds, classes, batch, own, drawn)
    marks: list[float] = []
    run.follow(lambda record: marks.append(time.perf_counter()))
    later = marks[len(marks) // 3 : -1]
    taken = sorted(b - a for a, b in zip(later, later[1:]))
    rate, usual = drawn * len(taken) / sum(taken), drawn / taken[len(taken) // 2]
    ours = f"{rate:,.0f} (median round: {usual:,.0f})"
    yield _row(case, "client-rounds a second, with messages", ours)


def _crowd(
    bench: Bench, rounds: int, classes: int, batch: int, own: int, drawn: int
) -> Run:
    clients = 100 if bench.small else 1000
    total = clients * (own + 1)  # one row of each to test on
    features = torch.randn(total, DIM, generator=torch.Generator().manual_seed(0))
    numbers = torch.arange(total)
    data = FederatedData.from_arrays(
        features,
        numbers % classes,
        numbers // (own + 1),
        test=numbers % (own + 1) == own,
        copy=False,
    )
    return Run(
        load_config(
            {
                "federate.method": "ggeur",
                "ggeur.use": True,
                "data.type": "embeddings@ggeur",
                "federate.total_round_num": rounds,
                "federate.sample_client_num": drawn,
                "federate.make_global_eval": True,
                "eval.freq": rounds,
                "dataloader.batch_size": batch,
                "train.local_update_steps": 1,
                "train.batch_or_epoch": "epoch",
                "train.optimizer.lr": 0.01,
                "ggeur.steps": [],
                "ggeur.checkpoint_every": -1,
                "ggeur.batched": "always",
                "use_gpu": bench.device.type == "cuda",
            }
        ),
        data,
    )


def whole(bench: Bench, name: str) -> dict[str, object]:
    """Seconds of a whole run of the paper's settings, without reading its data."""
    path = paper_configs.EXAMPLES / f"{name}.yaml"
    cfg = load_config(
        path, ["use_gpu", bench.device.type == "cuda", "ggeur.batched", "always"]
    )
    data = paper_configs.synthetic(cfg, name)
    marks = [time.perf_counter()]
    run = Run(cfg, data)
    results = run.follow(lambda record: marks.append(time.perf_counter()))
    marks.append(time.perf_counter())
    later = [b - a for a, b in zip(marks[3:], marks[4:])]
    ours = (
        f"{marks[-1] - marks[0]:.1f} (round 0 {marks[1] - marks[0]:.1f}, round 1 "
        f"{marks[2] - marks[1]:.1f}, then {sorted(later)[len(later) // 2]:.2f} each)"
    )
    what = f"s, {cfg.federate.total_round_num} rounds, AVG {results.final.avg:.2f}"
    return _row(name, what, ours)
