"""Run a study: tune settings, run all cells without results, and write study.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from federatedscope_ggeur.cfg_ggeur.keys import read
from federatedscope_ggeur.cfg_ggeur.load import read_settings
from federatedscope_ggeur.data import is_image_type
from federatedscope_ggeur.engines.run import what_to_embed
from federatedscope_ggeur.errors import ConfigError, listed
from federatedscope_ggeur.federation.exchanges.augmentation.keys import AugmentationKeys
from federatedscope_ggeur.files import refuse_links, write_atomically
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.reporting import Origin, Results, RoundRecord, read_results
from federatedscope_ggeur.reporting.json_values import as_json_value

from .jobs import Job, is_finished, results_in
from .plan import PlannedCell, StudyPlan
from .study import STUDY_FILE, Cell, Failed, Study, Tried, Tuned, read_study, to_text
from .study_file import TAKEN
from .workers import JobEvent, JobWorkers

if TYPE_CHECKING:
    from .command import StudyProgress

#: The metric of tuning: accuracy on validation rows.
METRIC = "val_acc"
_LISTED = 10  # wrong cells in one message


class StudyRun:
    """One study in its folder.

    Parameters
    ----------
    plan : StudyPlan
    folder : path, optional
        The study's folder. The default is a folder with the study's name in the
        ``outdir`` of its base config.

    Raises
    ------
    ConfigError
        Settings of a cell are wrong, or the folder of a cell holds another run.

    Attributes
    ----------
    notes : list of str
        Facts about the runs that may surprise a user.
    uses_gpu : bool
        Whether a run trains on a GPU where there is one.
    """

    def __init__(self, plan: StudyPlan, folder: str | os.PathLike | None = None):
        self.plan = plan
        self._origin = Origin.of_this_process()
        self._given: dict[Path, dict] = {}
        if folder is None:
            folder = Path(self._said_in(plan.base).get("outdir", "exp"), plan.name)
        self.folder = Path(folder)
        self.notes: list[str] = []
        self.uses_gpu = False
        self._images = self._check()
        self._tuned: dict[Path, Tuned] = {}
        self._failed: dict[str, Failed] = {}

    def tries(self) -> list[Job]:
        """The runs that tuning tries, of all rows."""
        return [job for _, jobs in self._tries() for job in jobs]

    def jobs(self) -> list[Job]:
        """The jobs of all cells that need no tuning, or whose tries are finished."""
        for cell, jobs in self._tries():
            if all(map(is_finished, jobs)):
                self._tuned[cell.folder.parent] = self._chosen(cell, jobs, {})
        return [self._job(cell) for cell in self._settled()]

    def run(self, workers: JobWorkers, watcher: StudyProgress) -> Study:
        """Tune, and run every cell that has no results yet.

        Parameters
        ----------
        workers : JobWorkers
        watcher : StudyProgress
            It is told what happens.

        Returns
        -------
        Study
            The content of study.json. Cells in `Study.failed` have no results.
        """
        lock, what = self.folder / ".lock", f"the study in {self.folder}"
        with locked(lock, what, _cannot_write):
            self._check_place()
            self._prepare(workers, watcher)
            text = self.plan.path.read_text(encoding="utf-8")
            write_atomically(self.folder / "study.yaml", text)
            self._write()
            do = partial(self._do, workers, watcher)
            self._tune(do)
            cells = self._settled()
            problems = do("runs", [self._job(cell) for cell in cells])
            for cell in cells:
                if cell.name in problems:
                    self._note_failed(cell, problems[cell.name])
            return self._write()

    def _check_place(self) -> None:
        """Raise `ConfigError` if the folder holds another study, or other runs."""
        refuse_links(self.folder)
        study = read_study(self.folder)
        axes = [axis.name for axis in self.plan.named_axes()]
        if study is not None:
            others = [axis.name for axis in study.axes]
            if (study.name, others) != (self.plan.name, axes):
                raise ConfigError(
                    f"'{self.folder}' holds the study '{study.name}' "
                    f"({_axes_text(others)}), but '{self.plan.name}' "
                    f"({_axes_text(axes)}) is to run; name another folder by --out"
                )
        for cell in self.plan.cells():
            for job in self._jobs_of(cell):
                is_finished(job)

    def _prepare(self, workers: JobWorkers, watcher: StudyProgress) -> None:
        """Embed images if there is anything to run.

        Raises
        ------
        ConfigError
            Data of runs to come have changed since other runs on them finished.
        """
        over, ahead = [], []
        for cell in self.plan.cells():
            jobs = self._jobs_of(cell)
            finished = [job for job in jobs if is_finished(job)]
            over += finished
            if len(finished) < len(jobs) or not (self.folder / cell.folder).exists():
                ahead += jobs
        if ahead and self._images:
            watcher.begin("embedding", self._images, {})
            workers.do(self._images, watcher.tell)
        problems = []

        def tell(event: JobEvent) -> None:
            if event.kind == "failed":
                problems.append(event.problem)

        finished_on = _by_data(over)
        workers.do([finished_on[d] for d in _by_data(ahead) if d in finished_on], tell)
        if problems:
            raise ConfigError(Lines(problems))

    def _do(
        self,
        workers: JobWorkers,
        watcher: StudyProgress,
        stage: str,
        jobs: Sequence[Job],
    ) -> dict[str, str]:
        """Do the jobs of a stage that have no results yet.

        Returns
        -------
        dict from name to problem
            The jobs that failed.
        """
        problems: dict[str, str] = {}

        def tell(event: JobEvent) -> None:
            if event.kind == "failed":
                problems[event.job.name] = event.problem
            watcher.tell(event)

        over = averages(jobs)
        if jobs:
            watcher.begin(stage, jobs, over)
            workers.do([job for job in jobs if job.name not in over], tell)
        return problems

    def _tune(self, do: Callable[[str, Sequence[Job]], dict[str, str]]) -> None:
        """Tune every row that needs it, on the first seed, and record the chosen
        settings.

        A row without a successful try counts as failed on every seed.
        """
        rows = self._tries()
        problems = do("tuning", self.tries())
        for cell, jobs in rows:
            tuned = self._chosen(cell, jobs, problems)
            self._tuned[cell.folder.parent] = tuned
            if not tuned.chosen:
                why = next((t.problem for t in tuned.tried if t.problem), "")
                problem = f"tuning chose nothing, because every try failed: {why}"
                for seed in self.plan.seeds:
                    self._note_failed(replace(cell, seed=seed), problem)
        if rows:
            self._write()

    def _tries(self) -> list[tuple[PlannedCell, list[Job]]]:
        """Each row that is to be tuned, as a cell of the first seed, and its tries."""
        cells = self.plan.cells(self.plan.seeds[0])
        return [(cell, self._jobs_of(cell)) for cell in cells if cell.tune]

    def _chosen(
        self, cell: PlannedCell, tries: Sequence[Job], problems: dict[str, str]
    ) -> Tuned:
        """Choose the settings with the best score on validation rows.

        If several have the best score, the first of them are chosen.
        """
        tried = []
        for job in tries:
            score, problem = None, problems.get(job.name, "")
            if not problem:
                assert job.folder is not None
                score = validation_score(read_results(job.folder))
                problem = "" if score is not None else _NO_VALIDATION
            tried.append(Tried(dict(job.cell.tuned), score, problem))
        scored = [t for t in tried if t.value is not None]
        best = max(scored, key=lambda t: t.value or 0.0, default=None)
        chosen = dict(best.settings) if best else {}
        return Tuned(dict(cell.labels), cell.seed, METRIC, tried, chosen)

    def _settled(self) -> list[PlannedCell]:
        """The cells that are ready to run: without tuning, or already tuned."""
        cells = []
        for cell in self.plan.cells():
            if cell.tune:
                tuned = self._tuned.get(cell.folder.parent)
                if tuned is None or not tuned.chosen:
                    continue
                cell = cell.with_tuned(tuned.chosen)
            cells.append(cell)
        return cells

    def _jobs_of(self, cell: PlannedCell) -> list[Job]:
        """The tries of a cell that is to be tuned, or else its run."""
        if cell.tune:
            return [self._try(candidate) for candidate in cell.candidates()]
        return [self._job(cell)]

    def _job(self, cell: PlannedCell) -> Job:
        base = {k: v for k, v in self._said_in(cell.base).items() if k not in TAKEN}
        settings = as_json_value({**base, **cell.settings}, "settings")
        record = Cell(
            self.plan.name,
            dict(cell.labels),
            cell.seed,
            dict(cell.tuned),
            settings,
        )
        folder = self.folder / cell.folder
        beside = self.plan.path.parent
        return Job(cell.name, cell.base, record, folder, self._origin, beside)

    def _said_in(self, base: Path) -> dict:
        """The settings that a config file holds."""
        if base not in self._given:
            settings, _ = read_settings(base, beside=self.plan.path.parent)
            self._given[base] = dict(settings)
        return self._given[base]

    def _try(self, cell: PlannedCell) -> Job:
        """The job that tries a candidate of tuning; it scores only validation rows."""
        settings = {**cell.settings, "eval.split": ["val"]}
        job = self._job(replace(cell, settings=settings))
        values = ", ".join(f"{key} {value}" for key, value in cell.tuned.items())
        return replace(job, name=f"{job.name} / {values}")

    def _check(self) -> list[Job]:
        """Raise `ConfigError` for wrong settings before anything runs.

        The method checks only the cells of the first seed, because other cells differ
        in nothing but the seed.

        Returns
        -------
        list of Job
            One job for each set of images to embed.
        """
        wrong: dict[str, str] = {}
        images: dict[str, Job] = {}
        unlike_paper: list[str] = []
        for cell in self.plan.cells(self.plan.seeds[0]):
            for job in self._jobs_of(cell):
                try:
                    cfg = job.config()
                    if cell.tune and not cfg.data.splits[1]:
                        raise ConfigError(_NO_VALIDATION)
                except ConfigError as error:
                    wrong.setdefault(str(error), job.name)
                    continue
                self.uses_gpu |= bool(cfg.use_gpu)
                if is_image_type(cfg.data.type):
                    kind, root, encoding, options = what_to_embed(cfg)
                    name = f"{kind} {root}".strip()
                    key = repr((kind, root, encoding, options))
                    images.setdefault(key, replace(job, folder=None, name=name))
                if not self.plan.paper and _is_ggeur_without_step_2(cell, cfg):
                    unlike_paper.append(" / ".join(cell.labels.values()))
        if unlike_paper:
            self.notes.append(
                f"{listed(unlike_paper, _LISTED)}: ggeur.steps lacks 2. Step 2 draws "
                "around the prototypes of other domains. With several domains, GGEUR "
                "of the paper has steps [1, 2]; compare_own_embeddings.yaml is set up "
                "for it"
            )
        if wrong:
            lines = [f"{self.plan.path}:"]
            for problem, name in list(wrong.items())[:_LISTED]:
                first, *others = problem.split("\n")
                lines += [f"{name}: {first}", *others]
            if len(wrong) > _LISTED:
                lines.append(f"and {len(wrong) - _LISTED} more")
            raise ConfigError(Lines(lines))
        return list(images.values())

    def _note_failed(self, cell: PlannedCell, problem: str) -> None:
        self._failed[cell.name] = Failed(dict(cell.labels), cell.seed, problem)

    def _write(self) -> Study:
        plan = self.plan
        study = Study(
            plan.name,
            plan.title,
            plan.named_axes(),
            list(plan.seeds),
            list(plan.columns),
            plan.baseline,
            plan.paper,
            list(self._tuned.values()),
            list(self._failed.values()),
        )
        write_atomically(self.folder / STUDY_FILE, to_text(study))
        return study


def _by_data(jobs: Sequence[Job]) -> dict[str, Job]:
    """The first job on each set of data."""
    rows: dict[Path, Job] = {}
    for job in jobs:
        assert job.folder is not None
        rows.setdefault(job.folder.parent, job)  # they differ in nothing but the seed
    found: dict[str, Job] = {}
    for job in rows.values():
        kind, root, _, options = what_to_embed(job.config())
        found.setdefault(repr((kind, root, options)), job)
    return found


def _is_ggeur_without_step_2(cell: PlannedCell, cfg) -> bool:
    """Whether a row is called GGEUR and no more, and does not take step 2."""
    names = {name.lstrip("+ ") for name in cell.labels.values()}
    return "GGEUR" in names and 2 not in read(cfg.ggeur, AugmentationKeys).steps


def _axes_text(names: Sequence[str]) -> str:
    return f"axes {', '.join(names)}" if names else "no axes"


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot write '{path}': {error.strerror or error}; name a writable folder by "
        "--out"
    )


_NO_VALIDATION = (
    "tune: there are no validation rows, by which tuning chooses; set data.splits so "
    "that the second share is above 0, such as [0.6, 0.1, 0.3]"
)


def averages(jobs: Sequence[Job]) -> dict[str, float | None]:
    """The AVG of each finished run, by the name of its job; None for a run without AVG.

    Raises
    ------
    ConfigError
        The folder of a job holds another run.
    """
    results = {job.name: results_in(job) for job in jobs}
    return {name: r.final.avg for name, r in results.items() if r is not None}


def validation_score(results: Results) -> float | None:
    """A run's accuracy on validation rows; None if it has no validation rows.

    For a head trained in rounds, this is the mean over the rounds that make the run's
    score. A calibrated head and a head in closed form are scored once, and that score
    counts.
    """
    final = results.final
    records: list[RoundRecord | None]
    if final.head == "trained":
        records = [r for r in results.rounds if r.round in final.rounds]
    elif final.head == "calibrated":
        records = [results.calibrated]
    else:
        records = [results.closed_form]
    values = [r.metrics.get(METRIC) for r in records if r is not None and r.metrics]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
