"""Folders of studies made by hand, for tests of reports: no training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from written_runs import DOMAINS, made, noisy, write

from federatedscope_ggeur.extras.studies.study import Cell, Study, to_text


def write_study(
    folder: Path,
    study: Study,
    means: Mapping[tuple[str, ...], float],
    rounds: int = 4,
    domains=DOMAINS,
) -> Path:
    """A study's folder: a cell for each of the points in `means`, and each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(to_text(study), encoding="utf-8")
    names = [axis.name for axis in study.axes]
    for number, (points, mean) in enumerate(means.items()):
        for seed in study.seeds:
            labels = dict(zip(names, points))
            write(
                folder / f"cell_{number}" / f"seed_{seed}",
                made(noisy(mean, seed, rounds, domains), seed, {"cell": number}),
                Cell(study.name, labels, seed),
            )
    return folder
