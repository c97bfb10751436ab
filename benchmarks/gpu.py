"""What a GPU is worth here: training of heads, extraction of embeddings, networks.

Each part prints a table, with a plain torch loop or the bare model on the same device
beside ours. All parts together take less than eight minutes on one data-centre GPU. A
part that has spent its share of them leaves out the rest of its cases, and says so.

    python benchmarks/gpu.py [--parts extraction,networks] [--csv FOLDER]
    python benchmarks/gpu.py --device cpu --small
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import gpu_extraction
import gpu_networks
import gpu_training
import torch
from gpu_bench import Bench
from measure import report

Row = dict[str, object]
#: Each part: yields the rows of its table, and may take so many seconds.
PARTS: dict[str, tuple[Callable[[Bench], Iterator[Row]], float]] = {
    "training": (gpu_training.rows, 230.0),
    "extraction": (gpu_extraction.rows, 120.0),
    "networks": (gpu_networks.rows, 100.0),
}


def described(device: torch.device) -> str:
    """The device, torch and the CPU cores in one line."""
    name = "CPU"
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        name = f"{torch.cuda.get_device_name(device)}, {memory:.0f} GiB"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"
    return (
        f"{name}; torch {torch.__version__}, CUDA {torch.version.cuda}; Python "
        f"{sys.version.split()[0]}; {cores} CPU cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, no limits")
    parser.add_argument("--csv", help="write <part>.csv into this folder")
    options = parser.parse_args()
    chosen = options.parts.split(",")
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        parser.error(f"--parts: no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
    print(described(device))
    failed = False
    for name in chosen:
        measure, budget = PARTS[name]
        bench = Bench(device, options.small, budget)
        print(f"\n{name}", flush=True)
        rows: list[Row] = []
        try:
            for row in measure(bench):
                rows.append(row)
                print("  ", *row.values(), flush=True)
        except Exception:  # the other parts can be measured all the same
            traceback.print_exc()
            failed = True
        if rows:
            report(rows, options.csv and str(Path(options.csv) / f"{name}.csv"))
        print(f"{name}: {budget - bench.left():.0f} of {budget:.0f} s", flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
