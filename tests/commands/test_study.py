"""The command around studies: what it says, and how a study looks as it goes."""

import io
import re
from dataclasses import replace

import pytest
from foreign_text import WORST, hidden_in
from rich.console import Console
from study_on_disk import StudyOnDisk

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands.study_table import StudyTable
from federatedscope_ggeur.examples import study_folder
from federatedscope_ggeur.studies.running import StudyRun
from federatedscope_ggeur.studies.study_file import load_study
from federatedscope_ggeur.studies.workers import Event, Workers


@pytest.fixture
def jobs(tmp_path):
    """Forty runs that nobody has done."""
    many = {"axes": {"federate.client_num": list(range(4, 44))}, "seeds": [0]}
    study = StudyOnDisk(tmp_path, **many)
    return StudyRun(load_study(study.file), study.out).jobs()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_study"], "no_such_study"),
        (["{file}", "--workers", "0"], "--workers: must be at least 1, got 0"),
    ],
)
def test_what_is_wrong_is_one_message(tmp_path, capsys, words, message):
    study = StudyOnDisk(tmp_path)
    assert main(["study", *(word.format(file=study.file) for word in words)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message.replace("\\", "") in error


def test_without_a_file_the_bundled_ones_are_listed(capsys):
    assert main(["study"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("table7: Table 7 of the GGEUR paper") for line in lines)
    assert len(lines) == len(list(study_folder().glob("*.yaml")))


def test_several_seeds_are_answered_with_their_study(tmp_path, capsys, monkeypatch):
    """The text that is printed is a study that loads."""
    words = ["--cfg", "ggeur_quickstart", "seed", "[0, 1]", "ggeur.steps", "[1]"]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "ggeur study my_study.yaml" in error
    file = tmp_path / "my_study.yaml"
    file.write_text(error.partition("\n\n")[2])
    plan = load_study(file)
    assert plan.seeds == (0, 1)
    assert plan.settings == {"ggeur.steps": [1]}


def shown(jobs, events, height=40, terminal=True):
    """What a console of so many lines has in the end."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=100, height=height)
    with StudyTable("mine", 2, console=console) as table:
        table.begin("runs", jobs, {})
        for event in events:
            table.tell(event)
    return text.getvalue()


@pytest.mark.slow
def test_a_table_shows_who_runs_and_who_failed(jobs):
    events = [
        Event("started", jobs[0]),
        Event("rounds", jobs[0], 7, 20, 0.5),
        Event("failed", jobs[1], problem="no data"),
    ]
    said = shown(jobs[:3], events)
    assert "mine, runs 1 of 3" in said
    assert "7/20" in said
    assert "failed" in said
    assert "2 processes" in said


@pytest.mark.slow
def test_of_many_rows_those_are_shown_that_something_happens_to(jobs):
    last = jobs[-1]
    said = shown(jobs, [Event("rounds", last, 7, 20, 0.5)], height=16)
    assert "7/20" in said
    assert "more rows" in said
    assert said.count("·") < len(jobs)


@pytest.mark.slow
def test_off_a_terminal_there_are_lines(jobs):
    events = [
        Event("started", jobs[0]),
        Event("killed", jobs[0], problem="its process was ended by SIGKILL"),
        Event("failed", jobs[1], problem="no data"),
    ]
    said = shown(jobs[:2], events, terminal=False)
    assert "SIGKILL; it starts again" in said
    assert "runs 1 of 2: 5 / seed 0: no data" in said
    assert "\x1b" not in said


def check_quiet(jobs, text: str, terminal: bool) -> None:
    job = replace(jobs[0], name=f"{text} / seed 0")
    events = [
        Event("killed", job, problem=text),
        Event("failed", jobs[1], problem=f"{text}\nmore"),
    ]
    said = shown([job, jobs[1]], events, terminal=terminal)
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", said) if terminal else said
    # On a terminal, what is left are rich's own moves of the cursor.
    assert not set(hidden_in(plain)) - ({"\r"} if terminal else set())
    if "[bold red]" in text and not terminal:
        assert "[bold red]rich[/]" in said


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_names_and_problems_are_text_without_markup(jobs, terminal):
    for text in WORST:
        check_quiet(jobs, text, terminal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "said"), [(1, "one GPU, .* one after the other"), (2, "2 GPUs")]
)
def test_runs_on_gpus_take_one_each(tmp_path, capsys, monkeypatch, gpus, said):
    """The runs themselves find no GPU here and go on without."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    shared = []
    monkeypatch.setattr(Workers, "share_gpus", lambda self, names: shared.extend(names))
    study = StudyOnDisk(tmp_path, settings={"use_gpu": True})
    assert main(["study", str(study.file), "--out", str(study.out)]) == 0
    assert re.search(f"note: .*{said}", capsys.readouterr().out)
    assert shared == [str(number) for number in range(gpus)]
