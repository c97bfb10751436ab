"""Studies run as a user runs them: what they leave, whatever cuts them off."""

import os
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
from foreign_text import WORST, hidden_in
from own_models import MODULE
from own_process import PATIENCE, children_of, in_turn, until
from pictures import write_images
from study_on_disk import METHODS, SHORT, StudyOnDisk, end

from federatedscope_ggeur import run
from federatedscope_ggeur.commands.console import shown_on_console
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.examples import study_folder
from federatedscope_ggeur.extras.studies.command import StudyProgress
from federatedscope_ggeur.extras.studies.jobs import Runner
from federatedscope_ggeur.extras.studies.quickstart import STUDY
from federatedscope_ggeur.extras.studies.running import StudyRun
from federatedscope_ggeur.extras.studies.study_file import load_study
from federatedscope_ggeur.extras.studies.workers import JobEvent, JobWorkers
from federatedscope_ggeur.reporting import Results, numbers

#: Rounds that can be cut off in their middle, of clients that keep a state.
LONG = {
    "federate.total_round_num": 40,
    "ggeur.checkpoint_every": 1e-3,
    "ggeur.base_method": "scaffold",
    "eval.freq": 10,
}


@pytest.mark.slow
def test_every_run_is_the_one_of_its_settings(make_study):
    study = make_study(baseline={"method": "FedAvg"})
    process = study.start("--workers", 2)
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "report" in said
    found = study.numbers()
    assert sorted(found) == sorted(
        f"{method}/seed_{seed}" for method in ("fedavg", "ggeur") for seed in (0, 1)
    )
    for name, settings in {
        "fedavg/seed_0": {"ggeur.steps": [], "seed": 0},
        "ggeur/seed_1": {"seed": 1},
    }.items():
        alone = run("ggeur_quickstart", overrides={**SHORT, **settings})
        assert found[name] == numbers(alone)
    left = study.study()
    assert left["title"] == "A title"
    assert left["baseline"] == {"axis": "method", "name": "FedAvg"}
    assert left["failed"] == left["tuned"] == []
    files = {path.name for path in (study.out / "fedavg" / "seed_0").iterdir()}
    assert files == {"results.json", "cell.json", "config.yaml", "log.txt",
                     "curve.png", "metrics.csv", "head.safetensors"}  # fmt: skip
    text = (study.out / "ggeur" / "seed_1" / "results.json").read_text()
    provenance = Results.from_json(text).provenance
    assert str(study.file) in provenance.command


@pytest.mark.slow
def test_what_is_over_stays_as_it_is(make_study):
    study = make_study(seeds=[0])
    study.run()
    before = study.numbers()
    times = {p: p.stat().st_mtime_ns for p in study.out.rglob("results.json")}
    assert "2 of 2 runs are finished" in study.run()
    said = study.run("train.optimizer.lr", 0.5, status=1)
    assert "holds a run with other settings (train.optimizer.lr None, now 0.5" in said
    assert study.numbers() == before
    study.write({**study.content, "seeds": [0, 1]})
    assert study.run("--list").count("to do") == 2
    study.run()
    assert {p: p.stat().st_mtime_ns for p in times} == times
    assert len(study.numbers()) == 4


@pytest.mark.slow
def test_a_study_does_not_go_on_with_other_rows(make_study, tmp_path):
    rng = np.random.default_rng(0)
    rows = {"labels": np.arange(60) % 2, "features": rng.normal(size=(60, 3))}
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "rows.npz"
    np.savez(file, **rows)
    data = {"data.type": "embeddings@ggeur", "data.root": str(tmp_path / "mine"),
            "data.splitter": "iid", "data.splitter_args": [],
            "federate.client_num": 2}  # fmt: skip
    study = make_study(settings={**SHORT, **data}, seeds=[0])
    study.run()
    np.savez(file, **{name: part[:40] for name, part in rows.items()})
    assert "2 of 2 runs are finished" in study.run()  # they all have the former rows
    left = {p: p.read_bytes() for p in study.out.iterdir() if p.is_file()}
    study.write({**study.content, "seeds": [0, 1]})
    said = study.run(status=1)
    assert {p: p.read_bytes() for p in left} == left
    assert f"'{study.out / 'fedavg' / 'seed_0'}' holds a run on other rows" in said
    assert f"data.root '{tmp_path / 'mine'}' have changed since" in said
    assert "(60 rows before, 40 now); put the former rows back, or name another" in said
    assert sorted(study.numbers()) == ["fedavg/seed_0", "ggeur/seed_0"]
    np.savez(file, **rows)
    study.run()
    assert len(study.numbers()) == 4


@pytest.mark.slow
def test_a_folder_in_the_way_is_left_alone(make_study):
    study = make_study()
    (study.out / "fedavg" / "seed_0").mkdir(parents=True)
    assert "is not a run of a study" in study.run(status=1)


@pytest.mark.slow
def test_another_study_in_the_folder_is_left_alone(make_study):
    study = make_study(seeds=[0])
    study.run()
    left = {p: p.read_bytes() for p in study.out.iterdir() if p.is_file()}
    study.write({**study.content, "axes": {"way": {"FedAvg": {"ggeur.steps": []}}}})
    said = study.run(status=1)
    assert f"'{study.out}' holds the study 'study' (axes method)" in said
    assert "'study' (axes way) is to run; name another folder by --out" in said
    study.file = study.file.rename(study.file.with_name("other.yaml"))
    study.write({**study.content, "axes": {"method": METHODS}})
    assert "holds the study 'study' (axes method), but 'other'" in study.run(status=1)
    study.file = study.file.rename(study.file.with_name("study.yaml"))
    study.run("train.optimizer.lr", 0.5, status=1)
    assert {p: p.read_bytes() for p in left} == left
    assert "2 of 2 runs are finished" in study.run()


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(make_study, tmp_path):
    missing = {"data.type": "embeddings@ggeur", "data.root": str(tmp_path / "mine")}
    study = make_study(axes={"method": {**METHODS, "mine": missing}}, seeds=[0])
    said = study.run(status=1)
    assert "failed: mine / seed 0: " in said
    assert str(tmp_path / "mine") in said
    assert sorted(study.numbers()) == ["fedavg/seed_0", "ggeur/seed_0"]
    (failed,) = study.study()["failed"]
    assert failed["labels"] == {"method": "mine"}
    log = study.out / "mine" / "seed_0.part" / "log.txt"
    assert str(tmp_path / "mine") in log.read_text()


def refused(study):
    """What is said of a study that cannot run."""
    with pytest.raises(ConfigError) as error:
        StudyRun(load_study(study.file))
    assert not study.out.exists()
    return str(error.value)


def test_wrong_settings_are_said_before_anything_runs(make_study):
    study = make_study(axes={"method": {**METHODS, "x": {"ggeur.step1_sice": 3}}})
    said = refused(study)
    assert "x / seed 0: " in said
    assert "did you mean ggeur.step1_size?" in said


def test_a_row_called_ggeur_without_step_2_is_noted(make_study):
    methods = {
        "FedAvg": {"ggeur.steps": []},
        "GGEUR, both steps": {},
        "+ GGEUR": {"ggeur.steps": [1]},
        "GGEUR, step 1": {"ggeur.steps": [1]},
    }
    study = make_study(axes={"method": methods})
    (note,) = StudyRun(load_study(study.file)).notes
    assert note.startswith("+ GGEUR: ggeur.steps lacks 2")
    assert "note: + GGEUR: ggeur.steps lacks 2" in study.run("--list")


@pytest.mark.slow
def test_tuning_chooses_on_validation_rows_of_the_first_seed(make_study):
    axes = {"method": {"tuned": {"tune": {"train.optimizer.lr": [1e-4, 0.1]}}}}
    settings = {**SHORT, "data.splits": [0.6, 0.1, 0.3]}
    study = make_study(settings=settings, axes=axes)
    ahead = study.run("--list")
    assert (ahead.count("to do"), "2 more after tuning" in ahead) == (2, True)
    study.run()
    over = study.run("--list")
    assert (over.count("done  tuned"), over.count("tuned / seed")) == (2, 4)
    assert "to do" not in over
    assert "more after" not in over
    (tuned,) = study.study()["tuned"]
    assert (tuned["seed"], tuned["metric"]) == (0, "val_acc")
    tried = {t["settings"]["train.optimizer.lr"]: t["value"] for t in tuned["tried"]}
    best = max(tried, key=tried.get)
    assert tuned["chosen"] == {"train.optimizer.lr": best}
    found = study.numbers()
    for lr, value in tried.items():
        tries = found[f"tuning/tuned/lr_{lr}/seed_0"]
        assert tries["final"]["avg"] is None  # no test row was looked at
        assert all(not r["accuracy"] for r in tries["rounds"])
        metrics = [r["metrics"]["val_acc"] for r in tries["rounds"]]
        assert value == pytest.approx(sum(metrics) / 3, abs=1e-15)
    for seed in (0, 1):
        config = found[f"tuned/seed_{seed}"]["config"]
        assert config["train"]["optimizer"]["lr"] == best
        assert config["eval"]["split"] == ["test"]


@pytest.mark.slow
def test_images_are_embedded_once_before_the_runs(make_study, tmp_path):
    tree = write_images(tmp_path / "tree", per_class=8)
    settings = {
        **SHORT,
        "data.type": "image_folder@ggeur",
        "data.root": str(tree),
        "data.splitter": "iid",
        "data.splitter_args": [],
        "federate.client_num": 2,
        "ggeur.encoder.name": "hog",
        "ggeur.encoder.num_workers": 1,
        "ggeur.encoder.cache": str(tmp_path / "cache"),
    }
    study = make_study(settings=settings, axes={})
    assert "embedding: run 1 of 1" in study.run()
    shutil.rmtree(tree)  # the cache alone serves what is run now
    study.write({**study.content, "seeds": [0, 1, 2]})
    study.run()
    assert len(study.numbers()) == 3


def test_tuning_wants_validation_rows(make_study):
    study = make_study(axes={"tune": {"train.optimizer.lr": [0.1, 0.01]}})
    assert "set data.splits so that" in refused(study)


@pytest.mark.slow
def test_one_that_is_interrupted_keeps_its_checkpoint(make_study):
    """How it goes on: `test_kills_leave_the_same_numbers`."""
    study = make_study(settings=LONG, axes={}, seeds=[0])
    process = study.fork("--workers", "1")
    part = study.out / "seed_0.part"
    until(lambda: (part / "private" / "checkpoint").exists(), process)
    end(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    assert process.exitcode == 130
    said = study.said.read_text()
    assert "repeat the command to go on" in said
    assert "Traceback" not in said
    assert (part / "private" / "checkpoint").exists()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's /proc")
def test_kills_leave_the_same_numbers(make_study):
    """Of the study itself, and of one of its processes, in the middle of runs."""
    study = make_study(settings=LONG, seeds=[0])
    process = study.fork("--workers", "2")
    until(lambda: list(study.out.rglob("checkpoint")), process)
    end(process.pid)
    process.join(PATIENCE)
    process = study.fork("--workers", "2")
    logs = study.out.rglob
    until(
        lambda: any("goes on after" in p.read_text() for p in logs("log.txt")), process
    )
    end(children_of(process.pid)[-1])
    process.join(PATIENCE)
    assert process.exitcode == 0, study.said.read_text()
    assert "SIGKILL" in study.said.read_text()
    found = study.numbers()
    assert sorted(found) == ["fedavg/seed_0", "ggeur/seed_0"]
    for method, more in {"fedavg": {"ggeur.steps": []}, "ggeur": {}}.items():
        undisturbed = numbers(run("ggeur_quickstart", overrides={**LONG, **more}))
        assert found[f"{method}/seed_0"] == undisturbed


@pytest.mark.slow
def test_plugins_are_sought_beside_the_study_and_then_beside_its_base(
    tmp_path, quickstart
):
    name, calls = "halfway_of_a_user", []
    settings = {"ggeur.plugins": [name], "ggeur.base_method": "halfway"}
    for place in ("study", "base", "both"):
        beside, bases = tmp_path / place, tmp_path / place / "bases"
        bases.mkdir(parents=True)
        (bases / "mine.yaml").write_text(quickstart.read_text())
        if place == "both":
            (bases / f"{name}.py").write_text("raise RuntimeError('the other one')")
        found = bases if place == "base" else beside
        (found / f"{name}.py").write_text(MODULE)
        own = {"base": "bases/mine", "settings": settings, "axes": {}, "seeds": [0]}
        study = StudyOnDisk(beside, **own)
        words = ("study", str(study.file), "--out", str(study.out), "--list")
        calls.append(("-m", "federatedscope_ggeur", *words))
    for status, said in in_turn(calls, tmp_path):
        assert status == 0, said
        assert "to do" in said


# The command around studies: what it says, and how a study looks as it goes.


@pytest.fixture
def jobs(tmp_path):
    """Forty runs that nobody has done."""
    many = {"axes": {"federate.client_num": list(range(4, 44))}, "seeds": [0]}
    study = StudyOnDisk(tmp_path, **many)
    return StudyRun(load_study(study.file), study.out).jobs()


def test_no_workers_are_refused(tmp_path, ggeur):
    said = ggeur("study", StudyOnDisk(tmp_path).file, "--workers", 0, status=1).err
    assert said.startswith("error: --workers: must be at least 1, got 0")


def test_without_a_file_the_bundled_ones_are_listed(ggeur):
    lines = ggeur("study").out.splitlines()
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
