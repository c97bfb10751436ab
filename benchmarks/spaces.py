"""What `ggeur.space` does to accuracy, over rates, on two folders of embeddings.

The settings, sizes and splits are those of comparison.py. Each space is run at several
rates: FederatedScope's default (0.1), others around it, and `raw` at those that suit
raw embeddings. Nothing is chosen on test rows: rates are listed, not searched.
`last` is the AVG of the head that the run leaves, `AVG` the mean over the last five
evaluated rounds, both in %.

A line of the raw CSV is one run, written as it ends; runs that are there already are
not made again.

    python benchmarks/spaces.py --root FOLDER --raw FILE --jobs 2
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev

from comparison import read_raw, run_all
from comparison_rows import BOTH, COMMON, GGEUR, NONE, SETTINGS, Task
from measure import report

#: Rates at which each space is run; raw embeddings of norm 1 need larger ones.
RATES = {
    "standard": (0.01, 0.03, 0.1, 0.3, 0.6),
    "raw": (0.001, 0.01, 0.1, 1.0),
}
CHOSEN = ("PACS domain", "PACS lds", "Caltech lda, threshold 1")


def tasks(root: Path, settings, spaces, momenta, seeds: int) -> Iterator[Task]:
    """All runs that are asked for; the method's name says space, rate and momentum."""
    for seed in range(seeds):
        for setting in settings:
            folder, of_setting = SETTINGS[setting]
            for space in spaces:
                for rate in RATES[space]:
                    for momentum in momenta:
                        for variant in (NONE, BOTH):
                            config = {
                                **COMMON,
                                **of_setting,
                                **GGEUR[variant],
                                "data.root": str(root / folder),
                                "ggeur.space": space,
                                "seed": seed,
                                "train.optimizer.lr": rate,
                                "train.optimizer.momentum": momentum,
                            }
                            name = f"{space}, rate {rate}, momentum {momentum}"
                            yield Task(setting, name, variant, seed, config)


def summary(raw) -> list[dict[str, object]]:
    """A row of means over seeds for each setting, space and rate."""
    found: dict[tuple[str, str], dict[str, list]] = {}
    for line in raw:
        row = found.setdefault((line["setting"], line["method"]), {})
        row.setdefault(line["variant"], []).append(line)
    rows = []
    for (setting, method), variants in sorted(found.items()):
        row: dict[str, object] = {"setting": setting, "space": method}
        for variant, name in ((NONE, "FedAvg"), (BOTH, BOTH)):
            lines = [x for x in variants.get(variant, []) if not x["error"]]
            for field in ("last", "avg"):
                values = [float(line[field]) for line in lines]
                row[f"{name}, {field}"] = f"{fmean(values):.2f}" if values else ""
            values = [float(line["last"]) for line in lines]
            row[f"{name}, s.d."] = f"{stdev(values):.2f}" if len(values) > 1 else ""
            row[f"{name}, runs"] = f"{len(lines)} of {len(variants.get(variant, []))}"
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, help="folder of pacs_mobilenetv2 and caltech101_clip"
    )
    parser.add_argument("--raw", type=Path, required=True, help="CSV, a line a run")
    parser.add_argument("--csv", help="write the table to this file")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--settings", nargs="+", default=CHOSEN, choices=[*SETTINGS])
    parser.add_argument("--spaces", nargs="+", default=[*RATES], choices=[*RATES])
    parser.add_argument(
        "--momenta", nargs="+", type=float, default=[0.9], help="of the local SGD"
    )
    args = parser.parse_args()
    if args.root is not None:
        chosen = args.settings, args.spaces, args.momenta, args.seeds
        run_all([*tasks(args.root, *chosen)], args.raw, args.jobs)
    lines = read_raw(args.raw)
    if not lines:
        sys.exit(f"{args.raw} holds no runs; --root is needed to make some")
    report(summary(lines.values()), args.csv)


if __name__ == "__main__":
    main()
