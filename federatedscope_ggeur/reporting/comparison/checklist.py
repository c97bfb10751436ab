"""The machine-learning reproducibility checklist, as far as files can fill it in.

Pineau et al., Improving Reproducibility in Machine Learning Research (JMLR 22, 2021),
version 2.0: its points about experiments, data and code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from federatedscope_ggeur.printable import LINE, printable
from federatedscope_ggeur.reporting.comparison.comparison import Comparison
from federatedscope_ggeur.reporting.comparison.runs import FoundRun
from federatedscope_ggeur.reporting.comparison.sheets import settings_text
from federatedscope_ggeur.reporting.comparison.table import Table, name_of
from federatedscope_ggeur.reporting.comparison.text import markdown
from federatedscope_ggeur.reporting.provenance import Provenance
from federatedscope_ggeur.settings import flatten

_AUTHORS = "To be said by the authors."
#: Settings that papers give for every method.
_GIVEN = (
    "train.optimizer.", "train.local_update_steps", "train.batch_or_epoch",
    "dataloader.batch_size", "federate.total_round_num", "federate.client_num",
    "federate.sample_client", "model.", "ggeur.step", "ggeur.scale", "ggeur.space",
    "ggeur.base_method", "ggeur.augmentation", "ggeur.closed_form", "data.split",
    "ggeur.privacy.min_samples", "ggeur.init", "ggeur.mlp_hidden_dim",
)  # fmt: skip
_MOST_VALUES = 8


def as_checklist(comparison: Comparison) -> str:
    """The checklist in Markdown, filled in from the runs; what no file can say is left
    to the authors by name."""
    runs = [
        run
        for table in comparison.tables
        for row in table.rows.values()
        for run in row.runs.values()
    ]
    made = [run.results.provenance for run in runs]
    known = [one for one in made if one is not None]
    sections = {
        "Models and algorithms": {
            "a clear description of the mathematical setting, algorithm and model": (
                [_AUTHORS]
            ),
            "an analysis of complexity (time, space, sample size)": [_AUTHORS],
        },
        "Data": {
            "statistics, such as the number of examples": _examples(comparison.tables),
            "the splits into train, validation and test": _splits(runs),
            "what was left out of the data, and all pre-processing": [
                *_each(("embedded by", lambda run: run.results.encoder), runs),
                f"Exclusions: {_lower(_AUTHORS)}",
            ],
            "the rows that were used, as a hash": _hashes(comparison.tables),
            "a link to a downloadable version of the data": [_AUTHORS],
            "for new data, how they were collected": [_AUTHORS],
        },
        "Code": {
            "dependencies": _each(("versions", _versions), runs),
            "training and evaluation code": [
                *_each(("engine", lambda run: run.results.engine), runs),
                *_commits(known),
                f"Where the code is to be had: {_lower(_AUTHORS)}",
            ],
            "the precise command to run": _commands(known),
            "a table of results": ["`table.md`, `table.csv` and `table.tex`."],
        },
        "Experiments": {
            "the range of hyper-parameters considered, how the best were selected, and "
            "all that were used": [*_tuned(comparison), *_settings(runs)],
            "the exact number of training and evaluation runs": _counts(comparison),
            "a clear definition of the measure and statistics used to report": [
                "Accuracy on test rows, for each domain; AVG: the plain mean over "
                "domains; STD: their population deviation. The score of a run is the "
                "mean over its last five evaluated rounds, or that of the one head "
                "that it leaves in closed form or calibrated.",
            ],
            "central tendency and variation": [
                "Mean and sample deviation (ddof 1) over seeds, 95% intervals by "
                "Student's t, paired t-tests and, from six seeds, Wilcoxon's, "
                "corrected by Holm: in the tables.",
            ],
            "the average run time for each result": _times(comparison.tables),
            "a description of the computing infrastructure": _machines(known, runs),
        },
    }
    parts = [
        "# Reproducibility checklist",
        "Points of the machine-learning reproducibility checklist (Pineau et al., "
        "version 2.0), filled in from the runs' own files.",
    ]
    for section, points in sections.items():
        parts.append(f"## {section}")
        for point, lines in points.items():
            answers = "\n".join(f"  - {line}" for line in lines or [_AUTHORS])
            parts.append(f"- **{point[0].upper()}{point[1:]}**\n{answers}")
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    """`text` as a span of code, which a backtick would end."""
    inner = printable(text, LINE).replace("`", "'")
    return f"`{inner}`"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _each(
    about: tuple[str, Callable[[FoundRun], str]], runs: Sequence[FoundRun]
) -> list[str]:
    """What all runs share, in a line; else each value with how many runs have it."""
    title, value_of = about
    values: dict[str, int] = {}
    for run in runs:
        value = value_of(run)
        values[value] = values.get(value, 0) + 1
    if len(values) == 1:
        return [f"{title}: {markdown(next(iter(values)))}"]
    return [
        f"{title}: {markdown(value)} ({count} of {len(runs)} runs)"
        for value, count in values.items()
    ]


def _examples(tables: Sequence[Table]) -> list[str]:
    lines = []
    for table in tables:
        runs = _runs(table)
        counts = {
            run.results.provenance.data.rows
            for run in runs
            if run.results.provenance and run.results.provenance.data
        }
        lines.append(
            f"{markdown(table.title)}: {_range(sorted(counts))} rows; "
            f"{len(table.class_names)} classes; domains "
            f"{markdown(', '.join(table.domains))}"
        )
    return lines


def _splits(runs: Sequence[FoundRun]) -> list[str]:
    def shares(run: FoundRun) -> str:
        config = dict(flatten(run.results.config, keep_empty=True))
        return f"{config.get('data.splits', 'as the data have them')}"

    def dealt(run: FoundRun) -> str:
        config = dict(flatten(run.results.config, keep_empty=True))
        splitter = config.get("data.splitter") or "iid"
        return f"{splitter} {config.get('data.splitter_args') or ''}".strip()

    parts = []
    for split in ("train", "val", "test"):
        held = [[getattr(c, f"{split}_rows") for c in r.results.clients] for r in runs]
        known = [sum(rows) for rows in held if None not in rows]
        parts.append(f"{split} {_range(known)}")
    clients = _range([len(run.results.clients) for run in runs])
    return [
        *_each(("shares to train on, validate and test (`data.splits`)", shares), runs),
        *_each(("divided among clients (`data.splitter`)", dealt), runs),
        f"rows that clients hold in a run: {', '.join(parts)}; {clients} clients",
    ]


def _range(values: Sequence[int]) -> str:
    """The values' least and largest; nobody may know (on FederatedScope)."""
    if not values:
        return "unknown"
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _hashes(tables: Sequence[Table]) -> list[str]:
    found: dict[str, list[str]] = {}
    for table in tables:
        for run in _runs(table):
            kept = run.results.provenance
            if kept is not None and kept.data is not None:
                seeds = found.setdefault(
                    f"{kept.data.rows} rows, {kept.data.sha256}", []
                )
                seeds.append(f"{run.results.seed}")
    return _some(
        [
            f"{_code(data)}: seeds {', '.join(dict.fromkeys(seeds))}"
            for data, seeds in found.items()
        ]
    )


def _versions(run: FoundRun) -> str:
    return ", ".join(f"{name} {v}" for name, v in sorted(run.results.versions.items()))


def _commits(known: Sequence[Provenance]) -> list[str]:
    states = dict.fromkeys(
        "no git repository"
        if one.git_commit is None
        else f"{_code(one.git_commit)}{', with changes' if one.git_changed else ''}"
        for one in known
    )
    return [f"commit of the folder that runs were started in: {s}" for s in states]


def _commands(known: Sequence[Provenance]) -> list[str]:
    lines = dict.fromkeys(" ".join(one.command) for one in known if one.command)
    return _some(list(map(_code, lines)))


def _tuned(comparison: Comparison) -> list[str]:
    lines = []
    for study in comparison.studies:
        axes = [axis.name for axis in study.axes]
        for one in study.tuned:
            tried = "; ".join(settings_text(t.settings) for t in one.tried)
            tuned = (
                f"{name_of(one.labels, axes)}: {settings_text(one.chosen)} of {tried}; "
                f"chosen on the validation split of seed {one.seed} by {one.metric}"
            )
            lines.append(markdown(tuned))
    return lines or ["Nothing was tuned by these studies; whether by hand before: "
                     f"{_lower(_AUTHORS)}"]  # fmt: skip


def _settings(runs: Sequence[FoundRun]) -> list[str]:
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for key, value in flatten(run.results.config, keep_empty=True):
            if key.startswith(_GIVEN):
                values.setdefault(key, {})[_value(value)] = None
    return [
        f"{_code(key)}: {markdown(', '.join(list(found)[:_MOST_VALUES]))}"
        + (f" and {len(found) - _MOST_VALUES} more" * (len(found) > _MOST_VALUES))
        for key, found in values.items()
    ] + ["All settings of a run: its `config.yaml`."]


def _value(value: Any) -> str:
    return '""' if value == "" else str(value)


def _counts(comparison: Comparison) -> list[str]:
    lines = []
    for table in comparison.tables:
        for name, row in table.rows.items():
            seeds = ", ".join(map(str, row.runs))
            runs = f"{name} ({table.title}): {len(row.runs)} runs, seeds {seeds}"
            lines.append(markdown(runs))
    for study in comparison.studies:
        tried = sum(len(one.tried) for one in study.tuned)
        if tried:
            tuning = f"study {study.name}: {tried} runs to tune, beside these"
            lines.append(markdown(tuning))
        if study.failed:
            failed = f"study {study.name}: {len(study.failed)} runs failed"
            lines.append(markdown(failed))
    return lines + list(map(markdown, comparison.notes))


def _times(tables: Sequence[Table]) -> list[str]:
    lines = []
    for table in tables:
        for name, row in table.rows.items():
            made = [run.results.provenance for run in row.runs.values()]
            known = [one for one in made if one is not None]
            if known:
                wall = fmean(one.wall_seconds for one in known)
                cpu = fmean(one.cpu_seconds for one in known)
                times = f"{name} ({table.title}): {wall:.1f} s, CPU {cpu:.1f} s"
                lines.append(markdown(times))
    return lines


def _machines(known: Sequence[Provenance], runs: Sequence[FoundRun]) -> list[str]:
    machines = dict.fromkeys(
        f"{one.processor}, {one.cores} cores, {one.platform}, "
        f"{f'GPU {one.gpu}' if one.gpu else 'no GPU'}"
        for one in known
    )
    peaks = [one.peak_memory for one in known if one.peak_memory is not None]
    lines = list(map(markdown, machines))
    if peaks:
        lines.append(f"largest peak memory of a run: {max(peaks) / 1e9:.2f} GB")
    if known:
        hours = sum(one.cpu_seconds for one in known) / 3600
        lines.append(f"all runs of the tables together: {hours:.3f} CPU hours")
    if len(known) < len(runs):
        lines.append(f"{len(runs) - len(known)} runs do not say where they were made")
    return lines


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MOST_VALUES
    shown = list(lines[:_MOST_VALUES])
    return (
        [*shown, f"and {more} more, in the runs' results.json"] if more > 0 else shown
    )


def _runs(table: Table) -> Iterable[FoundRun]:
    return [run for row in table.rows.values() for run in row.runs.values()]
