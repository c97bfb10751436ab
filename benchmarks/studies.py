"""How much faster two processes are than one, on the study of the bundled digits.

    python benchmarks/studies.py [--pairs N]

Whole commands, the start of Python included, one after the other: 1, 2, 1, 2, ...
processes; and whether they find the same bits. The machine should have two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from federatedscope_ggeur.reporting import Results, numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="quickstart_study")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    ratios, same = [], True
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs):
            taken, found = {}, {}
            for workers in (1, 2):
                out = Path(folder, f"{pair}_{workers}")
                taken[workers] = _seconds(options.study, workers, out)
                found[workers] = _numbers(out)
            ratios.append(taken[1] / taken[2])
            same = same and found[1] == found[2]
            print(f"one {taken[1]:.1f} s, two {taken[2]:.1f} s: {ratios[-1]:.2f}")
    figures = {
        "study": options.study,
        "runs": len(found[1]),
        "times faster": statistics.median(ratios),
        "all": ratios,
        "same bits": same,
        "cores": os.cpu_count(),
    }
    print(json.dumps(figures, indent=1))
    sys.exit(0 if same else 1)


def _seconds(study: str, workers: int, out: Path) -> float:
    command = [sys.executable, "-m", "federatedscope_ggeur", "study", study]
    command += ["--out", str(out), "--workers", str(workers), "--quiet"]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - started


def _numbers(out: Path) -> dict[str, dict]:
    return {
        path.relative_to(out).as_posix(): numbers(Results.from_json(path.read_text()))
        for path in sorted(out.rglob("results.json"))
    }


if __name__ == "__main__":
    main()
