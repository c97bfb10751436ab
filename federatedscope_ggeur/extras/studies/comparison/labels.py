"""Name runs by a study's labels, or by the settings that differ.

Means over seeds, and paired differences with intervals and p-values.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from scipy import stats

from federatedscope_ggeur.errors import listed
from federatedscope_ggeur.settings import flatten

from ..study import Axis, Study
from .runs import FoundRun

#: The name of the only axis if no study gives labels.
SETTINGS = "settings"
#: Settings that do not change what a run computes, such as where output goes.
_ASIDE = (
    "seed", "outdir", "expname", "expname_tag", "verbose", "federate.save_to",
    "federate.restore_from", "ggeur.checkpoint_every", "wandb.", "print_freq",
    "fedopt.use", "fedprox.use",  # they follow ggeur.base_method
)  # fmt: skip
#: These settings name a method best, so they come first.
_FIRST = (
    "ggeur.base_method", "ggeur.augmentation", "ggeur.steps", "ggeur.closed_form",
    "ggeur.init", "ggeur.calibrate", "ggeur.network.name",
)  # fmt: skip
_CLOSED_FORM = "ggeur.closed_form"
#: Settings of training. They do not name a run that is a closed form and no more.
_OF_TRAINING = (
    "ggeur.base_method", "ggeur.augmentation", "ggeur.steps",
    "federate.total_round_num", "train.",
)  # fmt: skip
_MOST_NAMED = 12
_MISSING = "(not set)"


@dataclass(frozen=True)
class Labelled:
    """The labels of runs, and their axes.

    Attributes
    ----------
    axes : list of Axis
        The axes in order, each with the points that runs have.
    labels : list of dict
        The point on each axis, for each run.
    from_study : bool
        Whether a study gave the labels.
    notes : list of str
    """

    axes: list[Axis]
    labels: list[dict[str, str]]
    from_study: bool
    notes: list[str]


def label(runs: Sequence[FoundRun], studies: Sequence[Study]) -> Labelled:
    """Make labels for runs on one data set. Runs of one row get equal labels.

    A run of a study has the labels of its cell. The label of any other run consists of
    the settings that differ between `runs`. If runs of a study are among them, that
    label is a point of the study's first axis.
    """
    cells = [run.cell for run in runs]
    named = [cell for cell in cells if cell is not None]
    if len(named) == len(runs):
        labels = [dict(cell.labels) for cell in named]
        return Labelled(_axes(labels, studies), labels, True, [])
    texts, notes = _by_settings(runs)
    if not named:
        labels = [{SETTINGS: text} for text in texts]
        return Labelled(_axes(labels, []), labels, False, notes)
    axes = _axes([dict(cell.labels) for cell in named], studies)
    first = axes[0].name if axes else SETTINGS
    labels = [
        dict(cell.labels) if cell is not None and axes else {first: text}
        for cell, text in zip(cells, texts)
    ]
    return Labelled(_axes(labels, studies), labels, True, notes)


def _axes(labels: Sequence[Mapping[str, str]], studies: Sequence[Study]) -> list[Axis]:
    """All axes with their points, in the order of the studies, then of the runs."""
    points: dict[str, dict[str, None]] = {}
    for study in studies:
        for axis in study.axes:
            points.setdefault(axis.name, {}).update(dict.fromkeys(axis.points))
    for of_run in labels:
        for axis_name, point in of_run.items():
            points.setdefault(axis_name, {})[point] = None
    there = {(axis, point) for of_run in labels for axis, point in of_run.items()}
    kept = {
        axis: [point for point in names if (axis, point) in there]
        for axis, names in points.items()
    }
    return [Axis(axis, names) for axis, names in kept.items() if names]


def _by_settings(runs: Sequence[FoundRun]) -> tuple[list[str], list[str]]:
    """A label for each run from settings that differ, and notes on other settings."""
    settings = [_compared(run) for run in runs]
    names = dict.fromkeys(key for one in settings for key in one)
    texts = {key: [_shown(one.get(key, _MISSING)) for one in settings] for key in names}
    differing = [key for key in names if len(set(texts[key])) > 1]
    differing.sort(key=_rank)
    untrained = [_is_untrained(run) for run in runs]
    if any(untrained) and _CLOSED_FORM in differing:
        differing.remove(_CLOSED_FORM)
        differing.insert(0, _CLOSED_FORM)
    kept: list[str] = []
    told: list[str] = []  # settings that follow from a kept one
    for key in differing:
        follows = any(
            len(set(zip(texts[other], texts[key]))) == len(set(texts[other]))
            for other in kept
        )
        (told if follows else kept).append(key)
    kept.sort(key=_rank)
    ends = [key.rpartition(".")[2] for key in kept]
    shown = [key if ends.count(end) > 1 else end for key, end in zip(kept, ends)]
    parts = [
        {key: f"{name} {texts[key][i]}" for key, name in zip(kept, shown)}
        for i in range(len(runs))
    ]
    labels = [", ".join(part.values()) or _common_name(runs) for part in parts]
    labels = _without_training(labels, parts, untrained)
    notes = []
    if told:
        others = listed(told, _MOST_NAMED)
        notes.append(
            f"these settings differ together with those that name the rows: {others}"
        )
    return labels, notes


def _rank(key: str) -> int:
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def _is_untrained(run: FoundRun) -> bool:
    """Whether a head in closed form is the whole run."""
    return run.results.final.head == "closed_form" and not run.results.rounds


def _without_training(
    labels: Sequence[str],
    parts: Sequence[Mapping[str, str]],
    untrained: Sequence[bool],
) -> list[str]:
    """The labels, without settings of training where a run does not train.

    A label stays as it is if two labels would become one.
    """
    shorter = [
        ", ".join(text for key, text in part.items() if not _is_in(key, _OF_TRAINING))
        if is_untrained
        else label
        for label, part, is_untrained in zip(labels, parts, untrained)
    ]
    pairs = set(zip(shorter, labels))
    common = Counter(short for short, _ in pairs)
    return [
        short if short and common[short] == 1 else label
        for short, label in zip(shorter, labels)
    ]


def _common_name(runs: Sequence[FoundRun]) -> str:
    names = {str(run.results.config.get("expname") or "") for run in runs}
    return (names.pop() if len(names) == 1 else "") or "all runs"


def _compared(run: FoundRun) -> dict[str, Any]:
    """The settings of a run that all runs of a row share, with engine and encoder."""
    settings = {
        key: value
        for key, value in flatten(run.results.config, keep_empty=True)
        if not _is_in(key, _ASIDE)
    }
    return {**settings, "engine": run.results.engine, "encoder": run.results.encoder}


def _is_in(key: str, names: Sequence[str]) -> bool:
    """Whether a key is among `names`, or in a section that one of them names."""
    return any(key == one or (one[-1] == "." and key.startswith(one)) for one in names)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    return json.dumps(as_written(value), ensure_ascii=False).replace('"', "'")


def as_written(value: Any) -> Any:
    """The value of a setting as a user writes it: whole numbers without a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: The level of the intervals. A p-value below the second number is significant.
CONFIDENCE, SIGNIFICANT = 0.95, 0.05
# A deviation below this share of the numbers counts as zero: it is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Spread:
    """Mean, deviation and interval of the numbers of several seeds.

    Attributes
    ----------
    n : int
        The number of seeds.
    mean : float
    sd : float or None
        The sample standard deviation (ddof 1). None for one seed.
    low, high : float or None
        The 95% interval of the mean, by Student's t. None for one seed. Also None if
        `sd` is 0, because numbers that do not depend on the seed do not tell how exact
        their mean is.
    """

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of `values`, one for each seed; None if there are none."""
        if not values:
            return None
        mean, sd = fmean(values), _sd(values)
        if not sd:
            return cls(len(values), mean, sd, None, None)
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
        half *= sd / math.sqrt(len(values))
        return cls(len(values), mean, sd, float(mean - half), float(mean + half))

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for one seed."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)


@dataclass(frozen=True)
class Difference:
    """The difference of two rows, seed by seed.

    Attributes
    ----------
    spread : Spread
        The spread of the differences, over the seeds that both rows have.
    p : float or None
        The p-value of the paired t-test, two-sided. It is None for one seed. It is also
        None if all differences are the same number, because a t-test needs a deviation:
        rows that share one head are not tested.
    p_holm : float or None
        The same p-value, corrected by Holm for all tested rows of the table.
    """

    spread: Spread
    p: float | None
    p_holm: float | None = None

    @property
    def is_equal(self) -> bool:
        """Whether it is 0 on every seed, or not significant after correction."""
        if self.p_holm is None:
            return self.spread.sd == 0 and self.spread.mean == 0
        return self.p_holm >= SIGNIFICANT


def paired(row: Mapping[int, float], other: Mapping[int, float]) -> Difference | None:
    """The differences `row` minus `other`, over the seeds that both have.

    None if the rows have no common seed. The p-value is not corrected yet.
    """
    seeds = sorted(set(row) & set(other))
    differences = [row[seed] - other[seed] for seed in seeds]
    largest = max((abs(v) for s in seeds for v in (row[s], other[s])), default=0.0)
    # Equal numbers may differ by rounding.
    differences = [0.0 if abs(d) <= _ROUNDING * largest else d for d in differences]
    spread = Spread.of(differences)
    if spread is None:
        return None
    p = None
    if spread.sd:
        t = spread.mean / (spread.sd / math.sqrt(spread.n))
        p = float(2 * stats.t.sf(abs(t), spread.n - 1))
    return Difference(spread, p)


def differences(
    rows: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]],
) -> dict[str, Difference]:
    """The difference of each row to its baseline, with p-values corrected for all rows.

    Parameters
    ----------
    rows : mapping
        The numbers of each row and of its baseline, by the row's name, and each by
        seed. Rows without a common seed are left out.
    """
    pairs = {name: paired(*both) for name, both in rows.items()}
    known = {name: one for name, one in pairs.items() if one is not None}
    corrected = holm([one.p for one in known.values()])
    return {
        name: replace(one, p_holm=p) for (name, one), p in zip(known.items(), corrected)
    }


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p-values by Holm's step-down method. None stays None.

    The k-th smallest of m p-values is multiplied by m - k + 1. The result is at least
    as large as the one before it, and at most 1.
    """
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    least = 0.0
    for before, (p, i) in enumerate(order):
        least = max(least, min(1.0, (len(order) - before) * p))
        corrected[i] = least
    return corrected


def _sd(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = fmean(values)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return 0.0 if sd <= _ROUNDING * max(map(abs, values)) else sd
