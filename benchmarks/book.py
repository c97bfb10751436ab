"""A book: CPU seconds of its changes, and of heads of parts.

Clients of made-up rows: normal around class means, with variances that fall over the
dimensions. Seconds by the clock are in brackets.

    python benchmarks/book.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from measure import report

from federatedscope_ggeur.extras.book.federation import Federation

HEADS = {
    "lda, strength by GCV": {"closed_form": "lda"},
    "lda, shrinkage 0.1": {"closed_form": "lda", "lda": {"shrinkage": 0.1}},
}


class Rows:
    """Draws rows [n, dim] and labels [n] of `classes` classes."""

    def __init__(self, dim: int, classes: int):
        self._rng = np.random.default_rng(0)
        self._means = 0.3 * self._rng.normal(size=(classes, dim))
        self._mix = self._rng.normal(size=(dim, dim)) * np.linspace(3, 0.01, dim)
        self._mix /= np.sqrt(dim)

    def draw(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = self._rng.integers(0, len(self._means), rows)
        noise = self._rng.normal(size=(rows, len(self._mix))) @ self._mix
        features = (self._means[labels] + noise).astype(np.float32)
        return torch.from_numpy(features), torch.from_numpy(labels)


def timed(function: Callable[[], object]) -> str:
    """CPU and clock seconds of a call."""
    started, clock = time.process_time(), time.perf_counter()
    function()
    used, passed = time.process_time() - started, time.perf_counter() - clock
    return f"{used:.3g} ({passed:.3g})"


def measured(name: str, options: argparse.Namespace) -> dict[str, str]:
    """A line of the table: seconds with one kind of head."""
    rows, clients = Rows(options.dim, options.classes), range(1, options.clients + 1)
    with tempfile.TemporaryDirectory() as folder:
        names = [str(c) for c in range(options.classes)]
        config = {"ggeur": HEADS[name]}
        book = Federation.create(f"{folder}/book", names, options.dim, config)
        for k in clients:
            book.join(k, *rows.draw(options.rows), "all")
        late = rows.draw(options.rows)
        return {
            "head": name,
            "join": timed(lambda: book.join(options.clients + 1, *late, "all")),
            "leave": timed(lambda: book.leave(options.clients + 1)),
            "head of half": timed(lambda: book.head(clients[::2])),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--rows", type=int, default=2000, help="of each client")
    parser.add_argument("--csv", help="also write the table there")
    options = parser.parse_args()
    report([measured(name, options) for name in HEADS], options.csv)


if __name__ == "__main__":
    main()
