"""Secure sums of round 0: accuracy, bytes a client, seconds of masking.

For each setting of comparison_rows.py and seed: closed forms and GGEUR with the default
min-count threshold on each client, and with secure sums, where it is one on the sum;
how many classes are kept back. Then how long a client masks beside so many others.

    python benchmarks/secure_sums.py --root FOLDER --csv benchmarks/results/FILE.csv
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev

from comparison_rows import COMMON, SETTINGS
from measure import interleave, report
from threadpoolctl import threadpool_limits

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.crypto import new_secret, public_key, shared_secret
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.secure_sums.vectors import mask

QUICKSTART = Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
WHERE = ("Caltech lda", "PACS domain")
SUMS = {
    "Caltech lda": {"ggeur.privacy.secure_sums": "statistics"},
    "PACS domain": {
        "ggeur.privacy.secure_sums": "statistics",
        "ggeur.privacy.secure_sums_radius": 40,
        "ggeur.privacy.secure_sums_max_rows": 16384,
        "ggeur.privacy.secure_sums_fraction_bits": 36,
    },
}
GGEUR = {"ggeur.geometry": "pooled", "ggeur.prototypes": "others"}
#: Rows around the one mean of all others.
AROUND = {"Caltech lda": 50, "PACS domain": 600}


def rows(setting: str) -> Iterator[tuple[str, dict]]:
    """What is compared in a setting, with its settings."""
    sums = SUMS[setting]
    for form in ("ncm", "lda", "ridge"):
        yield f"{form}, threshold on clients", {"ggeur.closed_form": form}
        yield f"{form}, secure sums", {"ggeur.closed_form": form, **sums}
    set_ = {"ggeur.closed_form": "lda", "ggeur.lda.shrinkage": 0.3}
    yield "lda with shrinkage 0.3, secure sums", {**set_, **sums}
    yield "GGEUR 1+2, threshold on clients", {"ggeur.steps": [1, 2]}
    around = {"ggeur.step2_size": AROUND[setting]}
    whole = {"ggeur.steps": [1, 2], **GGEUR, **sums, **around}
    yield "GGEUR 1+2, secure sums", whole
    start = {"ggeur.closed_form": "lda", "ggeur.init": "closed_form"}
    yield "GGEUR 1+2 from LDA, secure sums", {**whole, **start}


def scores(root: str, setting: str, chosen: dict, seeds: list[int]) -> dict:
    """One line of the table: the mean over seeds of what the run leaves."""
    folder, config = SETTINGS[setting]
    found, up, kept, seconds = [], [], [], []
    for seed in seeds:
        pairs = {**COMMON, **config, **chosen, "seed": seed}
        pairs["data.root"] = str(Path(root) / folder)
        started = time.process_time()
        with threadpool_limits(1):
            run = Run(
                load_config(QUICKSTART, [str(x) for p in pairs.items() for x in p])
            )
            results = run.follow(lambda record: None)
        seconds.append(time.process_time() - started)
        last = results.rounds[-1] if results.rounds else results.closed_form
        found.append(100 * last.avg)
        up.append(fmean(results.round0.statistics_bytes_up.values()) / 1e6)
        sums = results.round0.sums
        kept.append(len(sums.kept_back) if sums else None)
    return {
        "setting": setting,
        "seeds": len(seeds),
        "AVG": f"{fmean(found):.2f}",
        "sd": f"{stdev(found):.2f}" if len(found) > 1 else "",
        "MB a client, round 0": f"{fmean(up):.2f}",
        "classes kept back": " ".join(map(str, kept)) if kept[0] is not None else "",
        "CPU s": f"{fmean(seconds):.1f}",
    }


def masking(repeats: int) -> list[dict]:
    """CPU seconds of one client's masks in the stage that is longest."""
    lines = []
    for clients, dim in ((10, 512), (4, 1280), (100, 512), (10, 1280)):
        secrets = [new_secret() for _ in range(clients)]
        shared = {
            k: shared_secret(secrets[0], public_key(other))
            for k, other in enumerate(secrets[1:], start=2)
        }
        length = dim * (dim + 1) // 2

        def one(shared=shared, length=length):
            mask(1, shared, bytes(16), "pooled", bytes(32), length)

        taken = interleave({"mask": one}, repeats)["mask"]
        lines.append(
            {
                "clients": clients,
                "dimensions": dim,
                "MB": f"{8 * length / 1e6:.2f}",
                "CPU s, median": f"{sorted(taken)[len(taken) // 2]:.3f}",
                "most": f"{max(taken):.3f}",
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", help="folder with the settings' folders")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--setting", nargs="*", default=list(WHERE), choices=WHERE)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", default="", help="only rows with this in their name")
    parser.add_argument("--csv")
    options = parser.parse_args()
    report(masking(options.repeats))
    if options.root is None:
        return
    lines = []
    for setting in options.setting:
        for name, chosen in rows(setting):
            if options.rows not in name:
                continue
            line = scores(options.root, setting, chosen, options.seeds)
            lines.append({"row": name, **line})
            print(lines[-1], flush=True)
    report(lines, options.csv)


if __name__ == "__main__":
    main()
