"""The command around studies: what it says, and how a study looks as it goes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from foreign_text import WORST, hidden_in
from study_on_disk import SHORT, StudyOnDisk

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands.console import shown_on_console
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.examples import study_folder
from federatedscope_ggeur.extras.studies.command import StudyProgress
from federatedscope_ggeur.extras.studies.jobs import Runner
from federatedscope_ggeur.extras.studies.quickstart import STUDY
from federatedscope_ggeur.extras.studies.running import StudyRun
from federatedscope_ggeur.extras.studies.study_file import load_study
from federatedscope_ggeur.extras.studies.workers import JobEvent, JobWorkers


@pytest.fixture
def jobs(tmp_path):
    """Forty runs that nobody has done."""
    many = {"axes": {"federate.client_num": list(range(4, 44))}, "seeds": [0]}
    study = StudyOnDisk(tmp_path, **many)
    return StudyRun(load_study(study.file), study.out).jobs()


def test_no_workers_are_refused(tmp_path, capsys):
    assert main(["study", str(StudyOnDisk(tmp_path).file), "--workers", "0"]) == 1
    message = "error: --workers: must be at least 1, got 0"
    assert capsys.readouterr().err.startswith(message)


def test_without_a_file_the_bundled_ones_are_listed(capsys):
    assert main(["study"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("table7: Table 7 of the GGEUR paper") for line in lines)
    assert len(lines) == len(list(study_folder().glob("*.yaml")))


@pytest.fixture
def told(jobs, capsys):
    """Returns what is said of events of jobs, off a terminal."""

    def told(events, over=()) -> str:
        with shown_on_console("info"), StudyProgress() as progress:
            progress.begin("runs", jobs, dict.fromkeys(over, 0.5))
            for event in events:
                progress.tell(event)
        said = capsys.readouterr()
        return said.out + said.err

    return told


def test_lines_say_which_runs_are_over_and_who_failed(jobs, told):
    events = [
        JobEvent("rounds", jobs[1], 7, 20, 0.5),
        JobEvent("killed", jobs[1], problem="its process was ended by SIGKILL"),
        JobEvent("failed", jobs[1], problem="no data\nat all"),
    ]
    said = told(events, over=[jobs[0].name])
    assert "runs: 1 of 40 runs are finished already" in said
    assert "SIGKILL; it starts again" in said
    assert "5 / seed 0: no data at all" in said
    assert "run 2 of 40: 5 / seed 0: failed" in said


def test_names_and_problems_are_printable(jobs, told):
    for text in WORST:
        job = replace(jobs[0], name=f"{text} / seed 0")
        events = [
            JobEvent("killed", job, problem=text),
            JobEvent("failed", job, problem=f"{text}\nmore"),
        ]
        assert not set(hidden_in(told(events)))


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        pytest.param(1, "one GPU, .* one after the other", marks=pytest.mark.slow),
        (2, "2 GPUs"),
    ],
)
def test_runs_on_gpus_take_one_each(tmp_path, monkeypatch, gpus, said):
    """The runs themselves find no GPU here and go on without."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    shared = []
    monkeypatch.setattr(
        JobWorkers, "share_gpus", lambda self, names: shared.extend(names)
    )
    study = StudyOnDisk(tmp_path, settings={**SHORT, "use_gpu": True}, seeds=[0])
    assert re.search(f"note: .*{said}", study.run())
    assert shared == [str(number) for number in range(gpus)]


def test_a_run_that_fails_ends_with_its_own_error(tmp_path):
    study = StudyOnDisk(tmp_path, settings={**SHORT, "train.optimizer.lr": 1e9})
    job = StudyRun(load_study(study.file), study.out).jobs()[0]
    with pytest.raises(GGEURError, match="diverged"):
        Runner().do(job, lambda *told: None)


# The command `quickstart`; tests/test_readme.py runs it as a user does.


def test_its_study_has_the_rows_of_a_newcomer_on_seeds_that_nobody_looked_at():
    plan = load_study(STUDY)
    (axis,) = plan.named_axes()
    assert axis.points == [
        "each client alone",
        "FedAvg",
        "GGEUR",
        "one upload",
        "all rows in one place",
    ]
    assert len(plan.seeds) == 10
    assert not set(plan.seeds) & set(range(5)), "the setting was chosen on these"
    assert not any(cell.tune for cell in plan.cells())
