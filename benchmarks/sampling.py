"""Speed of drawing new embeddings, beside the limit of its arithmetic.

The limit is one matrix product and one fill with normal numbers, into memory that is
already there, in blocks of whichever size is fastest, and nothing else. The set is
drawn into memory that is already there, too, and into fresh memory, where the operating
system has to find every page first. The per-sample way calls
`numpy.random.multivariate_normal` once for every new row.
"""

from __future__ import annotations

import argparse
from statistics import median

import numpy as np
import torch
from measure import interleave, ratio, report
from workloads import DIM, eigenvalues

from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    GeometricShape,
    TotalSizes,
    augment,
)
from federatedscope_ggeur.rng import torch_generator

CLASSES, OWN, DOMAINS = 65, 10, 4
BLOCKS = (128, 256, 512, 1024)


def make_set(rank: int, size: int):
    """Steps 1 and 2 of one client: `size` rows, then `size` for each prototype."""
    generator = torch_generator(0, "benchmarks", "sampling")
    labels = torch.arange(CLASSES)
    shapes = {}
    for c in range(CLASSES):
        square = torch.randn(DIM, rank, generator=generator)
        directions = torch.linalg.qr(square).Q.T.contiguous()
        shapes[c] = GeometricShape(eigenvalues(rank), directions.T)
    others = DOMAINS - 1
    return augment(
        torch.randn(CLASSES * OWN, DIM, generator=generator),
        labels.repeat_interleave(OWN),
        shapes,
        torch.randn(CLASSES * others, DIM, generator=generator),
        labels.repeat(others),
        AugmentationSettings((1, 2), TotalSizes(size, size)),
        seed=0,
    )


def limit(bases, rows: int, block: int):
    """`rows` products of normal numbers for each basis [r, D], block by block."""
    generator = torch.Generator()
    noise = torch.empty(block, len(bases[0]))
    out = torch.empty(block, DIM)
    sizes = [min(block, rows - start) for start in range(0, rows, block)]

    def run():
        for basis in bases:
            for n in sizes:
                noise[:n].normal_(generator=generator)
                torch.mm(noise[:n], basis, out=out[:n])

    return run


def per_sample(shape: GeometricShape, calls: int):
    basis = shape.basis().double()
    covariance = (basis.T @ basis).numpy()
    generator = np.random.RandomState(0)  # the published scripts' way

    def run():
        for _ in range(calls):
            generator.multivariate_normal(np.zeros(DIM), covariance, 1)

    return run


def compare(rank: int, size: int, repeats: int) -> dict[str, object]:
    recipe = make_set(rank, size)
    rows, new = DOMAINS * size - OWN, CLASSES * (DOMAINS * size - OWN)
    bases = [block.shape.basis() for block in recipe.blocks]
    blocks = sorted({min(block, rows) for block in (*BLOCKS, rows)})
    functions = {f"limit {block}": limit(bases, rows, block) for block in blocks}
    functions["fresh"] = recipe.draw
    out = torch.zeros(recipe.rows, DIM)
    functions["draw"] = lambda: recipe.draw(out=out)
    seconds = interleave(functions, repeats)
    fresh, draw = seconds.pop("fresh"), seconds.pop("draw")
    best = min(seconds, key=lambda name: median(seconds[name]))
    calls = 3
    single = interleave({"": per_sample(recipe.blocks[0].shape, calls)}, 3)[""]
    times = median(single) / calls / (median(draw) / new)
    return {
        "rank": rank,
        "new rows": new,
        "rows/s": f"{new / median(draw):.0f}",
        "limit rows/s": f"{new / median(seconds[best]):.0f}",
        "limit's block": best.split()[1],
        "share of the limit": ratio(seconds[best], draw),
        "in fresh memory": ratio(seconds[best], fresh),
        "times per-sample": f"{times:.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[512, 64])
    parser.add_argument(
        "--size", type=int, default=500, help="step-1 size and rows per prototype"
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="3 repeats of size 100")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    if args.quick:
        args.size, args.repeats = 100, 3
    report([compare(rank, args.size, args.repeats) for rank in args.ranks], args.csv)


if __name__ == "__main__":
    main()
