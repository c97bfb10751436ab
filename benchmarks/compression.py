"""Heads in closed form from compressed statistics, beside those from exact ones.

Two of the settings of comparison.py (PACS by domain; Caltech-101 with label skew on ten
clients, min-count threshold 1), each kind at the same strength from statistics that are
exact and compressed. A line is the mean over seeds: kilobytes that a client sends in
round 0 (and the most that one sends), AVG, its difference to exact statistics, and the
error of the merged covariance and of the head's weights. With --train the rows are
GGEUR 1+2 with one shape a class and one for all, and kilobytes down a client.

    python benchmarks/compression.py --root FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from comparison_rows import COMMON, SETTINGS
from measure import report
from threadpoolctl import threadpool_limits

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, divide, load_data_set
from federatedscope_ggeur.models import load_vector

QUICKSTART = (
    Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
).resolve()
CHOSEN = ("PACS domain", "Caltech lda, threshold 1")
HEADS = {
    "lda 0.1": {"ggeur.closed_form": "lda", "ggeur.lda.shrinkage": 0.1},
    "lda 0.3": {"ggeur.closed_form": "lda", "ggeur.lda.shrinkage": 0.3},
    "ncm": {"ggeur.closed_form": "ncm"},
}
COMPRESSED = {"ggeur.statistics": "compressed"}
STATISTICS = {
    "summed": {"ggeur.statistics": "summed"},
    "compressed": COMPRESSED,
    "rank 64": {**COMPRESSED, "ggeur.compressed.rank": 64},
    "float16": {**COMPRESSED, "ggeur.compressed.dtype": "float16"},
}
SHAPES = {
    "class": {},
    "pooled": {"ggeur.geometry": "pooled"},
    "pooled, compressed": {"ggeur.geometry": "pooled", **COMPRESSED},
}


def carry_out(root: Path, setting: str, seed: int, keys: dict) -> Run:
    """A run that is over; it has its results as `results`."""
    folder, own = SETTINGS[setting]
    chosen = {**COMMON, **own, **keys, "seed": seed, "data.root": str(root / folder)}
    words = [str(part) for pair in chosen.items() for part in pair]
    config = load_config(QUICKSTART, words)
    going = Run(config, divide(config, load_data_set(config)))
    going.results = going.follow(lambda record: None)
    return going


def off(run: Run, exact: Run) -> tuple[float, float]:
    """Relative errors of the merged scatter and of the head's weights."""
    here, there = (one.engine.server.merged.statistics for one in (run, exact))
    scatter = 0.0
    if here.content != "means":
        wanted, found = there.scatter(), here.scatter()
        scatter = float((found - wanted).norm() / found.norm())
    moved = (_weights(run) - _weights(exact)).norm() / _weights(run).norm()
    return scatter, float(moved)


def _weights(run: Run):
    server = run.engine.server
    load_vector(server.model, server.params)
    return server.model.classifier.weight.detach().clone()


def heads(root: Path, setting: str, seeds: int) -> list[dict]:
    """A line for each head and form of statistics."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in range(seeds):
        for head, keys in HEADS.items():
            exact = None
            for name, form in STATISTICS.items():
                run = carry_out(root, setting, seed, {**keys, **form})
                exact = exact or run
                line = _measured(run, exact)
                found.setdefault((head, name), []).append(line)
    return [
        {"setting": setting, "head": head, "statistics": name, **_mean(lines)}
        for (head, name), lines in found.items()
    ]


def _measured(run: Run, exact: Run) -> dict[str, float]:
    results, sizes = run.results, run.results.round0.statistics_bytes_up.values()
    scatter, weights = off(run, exact)
    return {
        "kB up": fmean(sizes) / 1e3,
        "most": max(sizes) / 1e3,
        "AVG": 100 * results.final.avg,
        "difference": 100 * (results.final.avg - exact.results.final.avg),
        "covariance": scatter,
        "weights": weights,
    }


def shapes(root: Path, setting: str, seeds: int) -> list[dict]:
    """A line for each kind of shapes that GGEUR draws along."""
    lines = []
    for name, keys in SHAPES.items():
        found = []
        for seed in range(seeds):
            run = carry_out(root, setting, seed, {"ggeur.steps": [1, 2], **keys})
            round0, clients = run.results.round0, len(run.data.clients)
            line = {
                "kB up": fmean(round0.statistics_bytes_up.values()) / 1e3,
                "shapes, kB down": round0.geometry_bytes_down / clients / 1e3,
                "AVG": 100 * run.results.final.avg,
            }
            found.append(line)
        lines.append({"setting": setting, "shapes": name, **_mean(found)})
    return lines


def _mean(lines: list[dict[str, float]]) -> dict[str, str]:
    return {name: f"{fmean(line[name] for line in lines):.3f}" for name in lines[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="of the two folders")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--setting", choices=CHOSEN, action="append")
    parser.add_argument("--train", action="store_true", help="shapes in place of heads")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    rows = shapes if args.train else heads
    table = []
    with threadpool_limits(1):
        for setting in args.setting or CHOSEN:
            table += rows(args.root, setting, args.seeds)
    report(table, args.csv)


if __name__ == "__main__":
    main()
