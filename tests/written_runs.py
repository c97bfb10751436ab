"""Results of runs and their folders, made by hand: no training."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from federatedscope_ggeur import reporting

DOMAINS = ("Art", "Clipart")


def make_record(number, accuracy):
    avg, std = reporting.average(accuracy) if accuracy is not None else (None, None)
    loss = None if accuracy is None else 1.0 / (number + 2)
    return reporting.RoundRecord(
        number, [1, 2, 10], accuracy, avg, std, loss, 0.1 * number, 1000, 3000
    )


def make_head(method, accuracy):
    """A head made in one go."""
    avg, std = reporting.average(accuracy)
    details = {"shrinkage": 0.25, "left_out": 1}
    scores = (accuracy, avg, std, 0.5, 0.7, 11, 13)
    return reporting.RoundRecord(0, [], *scores, method=method, details=details)


def make_results(
    accuracies=None, *, round0=True, closed_form=None, calibrated=None, **changes
):
    """Results over one accuracy dict (or None, not evaluated) for each round, with
    everything awkward that a run can have."""
    if accuracies is None:
        accuracies = [None if i % 3 else _scores(i) for i in range(1, 25)]
    rounds = [make_record(i, scores) for i, scores in enumerate(accuracies, 1)]
    start = reporting.Round0(
        [1, 2, 10], 0.3, {"10": 7, "1": 5, "2": 6}, 90, 9, 27, 3,
        closed_form=closed_form,
    )  # fmt: skip
    fields = {
        "schema_version": reporting.SCHEMA_VERSION,
        "engine": "embedded",
        "status": "finished",
        "config": {"outdir": "exp", "expname": "e", "seed": 1, "ggeur": {"steps": [1]}},
        "versions": {"python": "3.9"},
        "seed": 1,
        "domains": ["clean", 'näh, "quoted" $x_1$', "_noisy", "empty"],
        "unseen_domains": ["_noisy"],
        "class_names": ["0", "1"],
        "encoder": "hog",
        "clients": [
            reporting.ClientInfo(1, "clean", 70, 30),
            reporting.ClientInfo(10, "empty", 7, 0),
        ],
        "round0": start if round0 else None,
        "rounds": rounds,
        "calibrated": calibrated,
        "final": reporting.summarise(rounds, start if round0 else None, calibrated),
    }
    return reporting.Results(**{**fields, **changes})


def _scores(i):
    last = 0.1 + 0.2 * (1 - 1 / i)
    second = 'näh, "quoted" $x_1$'
    return {"clean": 1 / 3 + i / 100, second: 1 - 1 / i, "_noisy": last, "empty": None}


def made(
    scores: Sequence[Mapping[str, float | None]],
    seed: int,
    config: Mapping | None = None,
    closed_form: Mapping[str, float] | None = None,
    **changes,
) -> reporting.Results:
    """Results with these accuracies round by round; two clients, 1 kB up a round."""
    settings = {"outdir": "exp", "seed": seed, "data": {"type": "office@ggeur"}}
    fields = {
        "closed_form": None if closed_form is None else make_head("lda", closed_form),
        "config": {**settings, **(config or {})},
        "seed": seed,
        "domains": list(scores[0] if scores else closed_form),
        "unseen_domains": [],
        "class_names": ["bike", "mug & cup"],
        "provenance": reporting.Provenance(
            "2026-01-02T03:04:05+00:00", 12.5, 11.0, 3 * 10**8, "Linux", "a processor",
            2, None, ["ggeur", "--cfg", "x.yaml"], "c0ffee", False,
            reporting.DataFingerprint(110, f"{seed:064d}"),
        ),
    }  # fmt: skip
    return make_results(scores, **{**fields, **changes})


def noisy(mean: float, seed: int, rounds: int = 4, domains=DOMAINS) -> list[dict]:
    """Scores that rise towards `mean`, off by a number of the seed."""
    rng = np.random.default_rng([seed, int(1e6 * mean)])
    ends = {domain: mean + 0.02 * rng.normal() for domain in domains}
    return [
        {d: float(end * (1 - 0.5 / t)) for d, end in ends.items()}
        for t in range(1, rounds + 1)
    ]


def write(folder: Path, results: reporting.Results, cell: object = None) -> Path:
    """A run's folder with its results.json and, of a study, the cell's cell.json."""
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(results.to_json(), encoding="utf-8")
    if cell is not None:
        from federatedscope_ggeur.extras.studies.study import to_text

        (folder / "cell.json").write_text(to_text(cell), encoding="utf-8")
    return folder


def write_study(folder: Path, study, means: Mapping[tuple[str, ...], float]) -> Path:
    """A study's folder: a cell for each of the points in `means`, and each seed."""
    from federatedscope_ggeur.extras.studies.study import Cell, to_text

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(to_text(study), encoding="utf-8")
    names = [axis.name for axis in study.axes]
    for number, (points, mean) in enumerate(means.items()):
        for seed in study.seeds:
            labels = dict(zip(names, points))
            write(
                folder / f"cell_{number}" / f"seed_{seed}",
                made(noisy(mean, seed), seed, {"cell": number}),
                Cell(study.name, labels, seed),
            )
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
