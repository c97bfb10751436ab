"""Every method with and without GGEUR, other augmentations, closed forms and bounds.

Four settings on two folders of embeddings (PACS by MobileNetV2, Caltech-101 by CLIP),
a linear head, one process thread a run. Every trained row takes the same number of
local mini-batches a round on each client, so what differs is what is done with them;
"FedAvg, 1 epoch" is the usual baseline beside. The one client of the centralised rows
takes as many as each of the others does, not as many as all together; its augmented
set may be as large as all theirs together. Settings of the methods are those of Table 9
of the GGEUR paper (docs/methods.md); it has none for FedProx, which gets 0.1 and 0.01,
and none for FedAvgM and the baseline augmentations, which have their defaults.
Optimiser, rate, sizes and rounds were set beforehand, the same for all rows of a
setting: nothing is tuned for a method or on the test rows. A row may therefore say more
of that one rate than of its method: 1.0 suits CLIP's features, whose norm is 1, and
SCAFFOLD's server rate of 0.25 takes quarter steps.

GGEUR also changes the clients' weights in averages, to their rows after augmentation:
that default, `ggeur.weight: augmented`, is in all rows with GGEUR but "FedAvg, original
weights". In "Caltech lda, threshold 1" rows to which the threshold means nothing show
the runs of "Caltech lda".

AVG and STD are of the mean over the last five evaluated rounds, `last` is the AVG of
the head that the run leaves. A calibrated head and one in closed form have but one
score, which stands for both. Gains are therefore differences of `last`, paired by seed,
with their standard error: over the same method without augmentation, where there is
such a row, and over FedAvg at equal local steps. A run that diverged or failed is in no
mean and no gain; `runs` says how many of a row's seeds its means are of. MB up is what
one client sends over the whole run, statistics included; a centralised run has no
figure, because its rows would travel themselves. Seconds are CPU seconds of the whole
run, data in memory. CCVR's own epochs are not among the local steps.

A line of the raw CSV is one run, written as it ends. A run that diverged or failed has
a line with an error in place of scores; it is run again at the next start, others are
not. Start with --quick: the folders may hold any embeddings then.

    python benchmarks/comparison.py --root FOLDER --raw FILE --jobs 4
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import sys
import time
from collections.abc import Iterable
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev

from comparison_rows import (
    CENTRALISED,
    COMMON,
    NONE,
    QUICK_MARK,
    QUICK_ROWS,
    SETTINGS,
    Config,
    Row,
    Task,
    shared_runs,
    table_rows,
    tasks,
)
from measure import report
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run, divide, load_data_set
from federatedscope_ggeur.reporting import Results

QUICKSTART = (
    Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
).resolve()
KEY = ("setting", "method", "variant", "seed")
FIELDS = (
    *(*KEY, "avg", "last", "std", "mb_up_per_client"),
    *("rounds", "seconds", "local_steps", "error"),
)
Line = dict[str, str]
Found = dict[tuple[str, Row], list[Line]]


def carry_out(task: Task) -> Line:
    """The line of one run."""
    line = {name: str(getattr(task, name)) for name in KEY}
    try:
        with threadpool_limits(1):
            return {**line, **_scores(task)}
    except Exception as error:  # of any kind: it must not end the other runs
        text = " ".join(str(error).replace(str(QUICKSTART), QUICKSTART.name).split())
        return {**line, "error": f"{type(error).__name__}: {text}"[:500]}


def _scores(task: Task) -> Line:
    cfg = load_config(QUICKSTART, _pairs(task.config))
    run = Run(cfg, divide(cfg, _data_set(cfg.data.root, cfg.seed)))
    started = time.process_time()
    results = run.follow(lambda record: None)
    seconds = time.process_time() - started
    rounds = len(results.rounds)
    up = results.final.bytes_up / 1e6 / len(run.data.clients)
    return {
        "avg": f"{100 * results.final.avg:.6f}",
        "last": f"{100 * _last(results):.6f}",
        "std": f"{100 * results.final.std:.6f}",
        "mb_up_per_client": "" if task.method == CENTRALISED else f"{up:.6f}",
        "rounds": str(rounds),
        "seconds": f"{seconds:.2f}",
        "local_steps": f"{rounds * _steps_of_a_round(cfg, run.data.clients):.0f}",
        "error": "",
    }


def _last(results: Results) -> float:
    """AVG of the head that the run leaves."""
    trained = results.final.head == "trained"
    return results.rounds[-1].avg if trained else results.final.avg


def _pairs(config: Config) -> list[str]:
    return [str(part) for pair in config.items() for part in pair]


@lru_cache(maxsize=2)
def _data_set(root: str, seed: int):
    config = {"data.type": COMMON["data.type"], "data.root": root, "seed": seed}
    return load_data_set(load_config(QUICKSTART, _pairs(config)))


def _steps_of_a_round(cfg, clients) -> float:
    """Mini-batches of a client, the mean over clients that have data."""
    if cfg.train.batch_or_epoch == "batch":
        return cfg.train.local_update_steps
    size, held = cfg.dataloader.batch_size, [len(c.train) for c in clients]
    return fmean(math.ceil(rows / size) for rows in held if rows)


def read_raw(path: Path) -> dict[tuple[str, ...], Line]:
    """The last line of each run; a line that was cut off is left out."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or FIELDS) != FIELDS:
            sys.exit(f"{path}: not a raw file of this script; its columns differ")
        lines = [line for line in reader if line["error"] is not None]
    return {tuple(line[name] for name in KEY): line for line in lines}


def append(lines: Iterable[Line], path: Path) -> None:
    """Write each line to the raw file as soon as it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = path.read_bytes() if path.exists() else b""
    with path.open("a", newline="", encoding="utf-8") as file:
        file.truncate(found.rfind(b"\n") + 1)  # a line that was cut off
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if b"\n" not in found:
            writer.writeheader()
        for line in lines:
            writer.writerow(line)
            file.flush()


def summary(raw: Iterable[Line]) -> list[dict[str, object]]:
    """A row of means over seeds for each (setting, method, variant) in `raw`."""
    found = _by_row(raw)
    settings = [*SETTINGS, *(name + QUICK_MARK for name in SETTINGS)]
    return [
        {"setting": setting, "method": row[0], "variant": row[1]}
        | _means(found[setting, row])
        | _gain("gain", found, setting, row, (row[0], NONE))
        | _gain("over FedAvg", found, setting, row, ("FedAvg", NONE))
        for setting in settings
        for row in table_rows()
        if (setting, row) in found
    ]


def _by_row(raw: Iterable[Line]) -> Found:
    """The lines of each row of each setting, with the runs it shares with another."""
    found: Found = {}
    for line in raw:
        row = line["method"], line["variant"]
        found.setdefault((line["setting"], row), []).append(line)
    settings = {setting for setting, _ in found}
    for setting, other, row in shared_runs():
        if setting in settings and (other, row) in found:
            found[setting, row] = found[other, row]
    return found


def _means(lines: list[Line]) -> dict[str, object]:
    eval_params = [line for line in lines if not line["error"]]

    def mean(name: str, digits: int) -> str:
        values = [float(line[name]) for line in eval_params if line[name]]
        return f"{fmean(values):.{digits}f}" if values else ""

    return {
        "runs": f"{len(eval_params)} of {len(lines)}",
        "AVG %": mean("avg", 2),
        "last %": mean("last", 2),
        "STD %": mean("std", 2),
        "MB up a client": mean("mb_up_per_client", 3),
        "rounds": mean("rounds", 0),
        "local steps": mean("local_steps", 0),
        "seconds": mean("seconds", 1),
    }


def _gain(
    name: str, found: Found, setting: str, row: Row, over: Row
) -> dict[str, object]:
    """Mean and standard error of the differences by seed; empty over itself."""
    gains = []
    if row != over:
        mine, theirs = (
            {
                line["seed"]: float(line["last"])
                for line in found.get((setting, which), [])
                if not line["error"]
            }
            for which in (row, over)
        )
        gains = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
    return {
        name: f"{fmean(gains):+.2f}" if gains else "",
        f"{name}, s.e.": f"{stdev(gains) / math.sqrt(len(gains)):.2f}"
        if len(gains) > 1
        else "",
    }


@contextmanager
def _mapper(jobs: int):
    """A map over tasks, in `jobs` processes if more than one."""
    if jobs == 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield pool.imap_unordered


def run_all(wanted: list[Task], raw: Path, jobs: int) -> None:
    """Carry out the tasks that have no score in `raw` yet."""
    done = {key for key, line in read_raw(raw).items() if not line["error"]}
    left = [t for t in wanted if tuple(str(getattr(t, n)) for n in KEY) not in done]
    with _mapper(min(jobs, max(1, len(left)))) as each:
        append(tqdm(each(carry_out, left), total=len(left), unit="run"), raw)


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
    parser.add_argument("--settings", nargs="+", default=[*SETTINGS], choices=SETTINGS)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="SUBSTRING",
        help="rows whose 'method, variant' holds one of these",
    )
    parser.add_argument(
        "--quick", action="store_true", help="1 seed, 2 rounds, a handful of rows"
    )
    parser.add_argument(
        "--table", action="store_true", help="run nothing, show what the raw file holds"
    )
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.only = 1, args.only or QUICK_ROWS
    if not args.table:
        if args.root is None:
            parser.error("--root is needed to run anything")
        wanted = tasks(args.root, args.settings, args.seeds, args.only, args.quick)
        run_all([*wanted], args.raw, args.jobs)
    lines = read_raw(args.raw)
    if not lines:
        sys.exit(f"{args.raw} holds no runs")
    report(summary(lines.values()), args.csv)
    for key, line in lines.items():
        if line["error"]:
            print(f"{', '.join(key)}: {line['error']}", file=sys.stderr)


if __name__ == "__main__":
    main()
