"""GGEUR on a share of each epoch (`ggeur.epoch_share`) beside the whole epochs.

Caltech-101 by CLIP (10 clients, LDA 0.1, step 2 around the other clients) and PACS by
MobileNetV2 (4 clients, by domain and under LDS 0.1), in both spaces, with step 1 and
with steps 1 and 2. Rates and sizes were set beforehand, none was chosen by a score.
The rows of the table, each with its gain over the whole epochs, paired by seed, with
its standard error:

- share: `epoch_share` as it is, which keeps T;
- T not kept: the same share at the rate of the whole epochs;
- own rows: no augmentation, as many mini-batches as the share takes, at its rate.

AVG is of the head that a run leaves, in %. CPU is that of the whole run, round 0 and
one evaluation included, data in memory: how many times less than the whole epochs.

    python benchmarks/epoch_share.py --root FOLDER --csv FILE
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

from comparison_rows import SETTINGS
from measure import report, standard_error
from threadpoolctl import threadpool_limits

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import set_rows
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation.holdings import median_rows

QUICKSTART = (
    Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
).resolve()
CHOSEN = ("Caltech lda, threshold 1", "PACS domain", "PACS lds")
SPACES = ("raw", "standard")
STEPS = ([1], [1, 2])
#: One epoch a round, without momentum: T is mini-batches x rate.
COMMON = {
    "data.type": "embeddings@ggeur",
    "dataloader.batch_size": 64,
    "train.batch_or_epoch": "epoch",
    "train.local_update_steps": 1,
    "train.optimizer.momentum": 0.0,
}
#: Rates for embeddings of norm 1 and of norm 20 or so, and for the standard space.
RATES = {
    ("caltech101_clip", "raw"): 1.0,
    ("pacs_mobilenetv2", "raw"): 0.03,
    ("caltech101_clip", "standard"): 0.1,
    ("pacs_mobilenetv2", "standard"): 0.03,
}
#: Rows of a class after step 1, and for each prototype of step 2: the paper's, but
#: with step 2 on Caltech, whose 100 classes have 9 prototypes each.
SIZES = {
    ("caltech101_clip", (1,)): (2000, 0),
    ("caltech101_clip", (1, 2)): (200, 200),
    ("pacs_mobilenetv2", (1,)): (2000, 0),
    ("pacs_mobilenetv2", (1, 2)): (500, 500),
}
WHOLE, SHARE, NOT_KEPT, OWN = "whole epochs", "share", "T not kept", "own rows"


@dataclass(frozen=True)
class Case:
    setting: str
    space: str
    steps: tuple[int, ...]

    def settings(self, root: Path, rounds: int, seed: int) -> dict[str, object]:
        folder, of_setting = SETTINGS[self.setting]
        step1_size, step2_size = SIZES[folder, self.steps]
        return {
            **of_setting,
            **COMMON,
            "data.root": str(root / folder),
            "eval.freq": rounds,
            "federate.total_round_num": rounds,
            "ggeur.space": self.space,
            "ggeur.step1_size": step1_size,
            "ggeur.step2_size": step2_size,
            "ggeur.steps": list(self.steps),
            "seed": seed,
            "train.optimizer.lr": RATES[folder, self.space],
        }


def carry_out(task, root: Path, rounds: int, share: float) -> tuple:
    """The rows of one case and seed: {row: (AVG in %, CPU seconds)}."""
    case, seed = task
    whole = case.settings(root, rounds, seed)
    found = {WHOLE: _run(whole), SHARE: _run({**whole, "ggeur.epoch_share": share})}
    cheap = _cheap(whole, share)
    on_share = {**whole, "ggeur.epoch_share": share}
    # A rate that `epoch_share` makes longer by what is left of this one.
    factor = cheap["T"] / (cheap["batches"] * cheap["set rate"])
    found[NOT_KEPT] = _run(
        {**on_share, "train.optimizer.lr": cheap["set rate"] / factor}
    )
    found[OWN] = _run(
        {
            **whole,
            "ggeur.steps": [],
            "train.batch_or_epoch": "batch",
            "train.local_update_steps": cheap["batches"],
            "train.optimizer.lr": cheap["rate"],
            "train.optimizer.momentum": cheap["momentum"],
        }
    )
    return case, seed, found, cheap


def _run(settings: dict[str, object]) -> tuple[float, float]:
    run = _made(settings)
    with threadpool_limits(1):
        started = time.process_time()
        results = run.follow(lambda record: None)
        seconds = time.process_time() - started
    return 100 * results.final.avg, seconds


def _made(settings: dict[str, object]) -> Run:
    pairs = [str(part) for pair in settings.items() for part in pair]
    return Run(load_config(QUICKSTART, pairs))


def _cheap(settings: dict[str, object], share: float) -> dict[str, float]:
    """What the median client does on a share: mini-batches, rate, momentum, T."""
    run = _made({**settings, "ggeur.epoch_share": share})
    role = run.settings.role
    rows = median_rows(set_rows(run.settings, run.held).tolist())
    whole = median_rows(set_rows(run.settings, run.held, whole=True).tolist())
    training = role.training.on_share(whole, rows)
    return {
        "batches": training.batches(rows),
        "rate": training.optimizer.lr,
        "set rate": role.training.optimizer.lr,
        "momentum": training.optimizer.momentum,
        "T": training.reach(rows),
    }


def table(done: list[tuple]) -> Iterator[dict[str, object]]:
    cases = list(dict.fromkeys(case for case, *_ in done))
    for case in cases:
        runs = [(found, cheap) for c, _, found, cheap in done if c == case]
        for name in (WHOLE, SHARE, NOT_KEPT, OWN):
            scores = [found[name][0] for found, _ in runs]
            gains = [found[name][0] - found[WHOLE][0] for found, _ in runs]
            times = [found[WHOLE][1] / found[name][1] for found, _ in runs]
            is_whole = name == WHOLE
            yield {
                "setting": case.setting,
                "space": case.space,
                "steps": "+".join(map(str, case.steps)),
                "rows": name,
                "AVG %": f"{fmean(scores):.2f}",
                "gain": "" if is_whole else f"{fmean(gains):+.2f}",
                "s.e.": "" if is_whole else f"{standard_error(gains):.2f}",
                "CPU, times less": "" if is_whole else f"{fmean(times):.1f}",
                "mini-batches": "" if is_whole else runs[0][1]["batches"],
                "T": f"{fmean(cheap['T'] for _, cheap in runs):.3g}",
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, required=True, help="of the two folders of embeddings"
    )
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--settings", nargs="+", default=CHOSEN, choices=CHOSEN)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    cases = [Case(*c) for c in product(args.settings, SPACES, map(tuple, STEPS))]
    tasks = [*product(cases, range(args.seeds))]
    job = partial(carry_out, root=args.root, rounds=args.rounds, share=args.share)
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        done = list(pool.imap(job, tasks))
    report(list(table(done)), args.csv)


if __name__ == "__main__":
    main()
