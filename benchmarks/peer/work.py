"""The work that `peers.py` gives every peer, as files of a folder; numpy suffices."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

#: A line to the benchmark that waits at the other end of the pipe.
SAID = "peers: "


class Work:
    """FedAvg of a linear head: one epoch of SGD on each client drawn.

    Attributes
    ----------
    features : array of shape (K, n, D), float32
    labels : array of shape (K, n), int64
        Client k of the schedule holds row k - 1 of both.
    weight, bias : arrays of shapes (C, D) and (C,), float32
        What the head begins with.
    schedule : list of list of int
        The clients that train in each round, from 1.
    batch, rate, seed : int, float, int
    """

    def __init__(self, folder: str):
        self.folder = Path(folder)
        self.features, self.labels, self.weight, self.bias = (
            np.load(self.folder / f"{name}.npy", mmap_mode="r")
            for name in ("features", "labels", "weight", "bias")
        )
        settings = json.loads((self.folder / "work.json").read_text())
        self.schedule: list[list[int]] = settings["schedule"]
        self.batch, self.rate = settings["batch"], settings["rate"]
        self.seed, self._stops = settings["seed"], settings["stops"]

    @property
    def rounds(self) -> int:
        return len(self.schedule)

    def after_round(self, number: int) -> None:
        """Stop where the benchmark reads the clocks, until it has done so."""
        if number in self._stops:
            print(f"{SAID}{number}", flush=True)
            sys.stdin.readline()

    def finish(self, weight: np.ndarray, bias: np.ndarray, *packages: str) -> None:
        """Leave the head of shape (C, D) and (C,), and the versions of `packages`."""
        left = Path(sys.argv[2])
        np.savez(left / "head.npz", weight=weight, bias=bias)
        versions = {name: version(name) for name in packages}
        (left / "versions.json").write_text(json.dumps(versions))


def given() -> Work:
    """The work in the first folder of the command line; the second is for the head."""
    return Work(sys.argv[1])
