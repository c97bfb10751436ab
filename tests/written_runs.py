"""Folders of runs made by hand, for tests of reports: no training."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from made_results import make_results

from federatedscope_ggeur.reporting import (
    ClientInfo,
    DataFingerprint,
    Provenance,
    Results,
    Round0,
    RoundRecord,
    average,
    summarise,
)

DOMAINS = ("Art", "Clipart")


def made(
    scores: Sequence[Mapping[str, float | None]],
    seed: int,
    config: Mapping | None = None,
    closed_form: Mapping[str, float] | None = None,
    **changes,
) -> Results:
    """Results with these accuracies round by round; two clients, 1 kB up a round."""
    rounds = [
        RoundRecord(i, [1, 2], dict(s), *average(dict(s)), 0.5, 0.25, 1000, 3000)
        for i, s in enumerate(scores, 1)
    ]
    head = None
    if closed_form is not None:
        about = (dict(closed_form), *average(dict(closed_form)), 0.5, 0.1, 0, 400)
        head = RoundRecord(0, [], *about, method="lda", details={})
    start = Round0(
        [1, 2], 0.5, {"1": 500, "2": 700}, 90, 10, 8, 0, closed_form=head
    )  # fmt: skip
    domains = list(scores[0] if scores else closed_form)
    fields = {
        "config": {
            "outdir": "exp",
            "expname": f"seed {seed}",
            "seed": seed,
            "data": {"type": "office@ggeur"},
            **(config or {}),
        },
        "versions": {"python": "3.9", "torch": "2.1"},
        "seed": seed,
        "domains": domains,
        "unseen_domains": [],
        "class_names": ["bike", "mug & cup"],
        "clients": [ClientInfo(1, domains[0], 70, 30), ClientInfo(2, "x", 7, 3)],
        "round0": start,
        "rounds": rounds,
        "final": summarise(rounds, start),
        "provenance": Provenance(
            "2026-01-02T03:04:05+00:00", 12.5, 11.0, 3 * 10**8, "Linux", "a processor",
            2, None, ["ggeur", "--cfg", "x.yaml"], "c0ffee", False,
            DataFingerprint(110, f"{seed:064d}"),
        ),
    }  # fmt: skip
    return replace(make_results(), **{**fields, **changes})


def noisy(mean: float, seed: int, rounds: int = 4, domains=DOMAINS) -> list[dict]:
    """Scores that rise towards `mean`, off by a number of the seed."""
    rng = np.random.default_rng([seed, int(1e6 * mean)])
    ends = {domain: mean + 0.02 * rng.normal() for domain in domains}
    return [
        {d: float(end * (1 - 0.5 / t)) for d, end in ends.items()}
        for t in range(1, rounds + 1)
    ]


def write(folder: Path, results: Results, cell: object = None) -> Path:
    """A run's folder with its results.json and, of a study, the cell's cell.json."""
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(results.to_json(), encoding="utf-8")
    if cell is not None:
        from federatedscope_ggeur.extras.studies.study import to_text

        (folder / "cell.json").write_text(to_text(cell), encoding="utf-8")
    return folder


@contextmanager
def edited(folder: Path):
    """What results.json says of a run, to be changed; then it is written back."""
    path = folder / "results.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    yield content
    path.write_text(json.dumps(content), encoding="utf-8")


def calls(action) -> int:
    """How many functions of Python are called."""
    seen = 0

    def count(frame, event, argument):
        nonlocal seen
        seen += event == "call"

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return seen


def check_growth(act, folder: Path) -> None:
    """Check that work of `act` on a run's folder grows with its rounds, and no faster.

    A round takes no more than a look at each of its 16 values.
    """
    sizes = [100, 300, 500]
    places = [str(write(folder / f"{n}", made(noisy(0.8, 0, n), 0))) for n in sizes]
    act(places[0])  # what is imported and remembered
    short, middle, long = (calls(partial(act, place)) for place in places)
    assert long - middle <= 1.1 * (middle - short)
    assert (long - short) / 400 < 120
