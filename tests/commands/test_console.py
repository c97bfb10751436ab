"""A run from the command line: what it shows and what it leaves."""

import itertools
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
import yaml
from foreign_text import FORGED, hidden_in
from own_process import PATIENCE, forked, until
from safetensors import safe_open

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands import console
from federatedscope_ggeur.engines.embedded import EmbeddedEngine
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.reporting import Results, new_run_folder, numbers, write_run

RUN = Path("exp/ggeur_quickstart")  # where `short` runs
CHECKPOINT = {"private"}
FILES = {
    "results.json", "metrics.csv", "curve.png", "head.safetensors", "log.txt",
    "config.yaml", *CHECKPOINT,
}  # fmt: skip


def read_results(folder=RUN):
    return Results.from_json((folder / "results.json").read_text())


@pytest.fixture
def short(uneven, tmp_path, monkeypatch):
    """Arguments of a short run whose output goes below the test's folder."""
    monkeypatch.chdir(tmp_path)
    return [
        "--cfg", "ggeur_quickstart.yaml",
        *uneven,
        "federate.client_num", "3",
        "federate.total_round_num", "3",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_leaves_files_that_a_person_and_a_program_can_read(short, ggeur):
    shown = ggeur(*short)
    assert {file.name for file in RUN.iterdir()} == FILES
    results = read_results()
    assert (results.status, len(results.rounds)) == ("finished", 3)
    assert yaml.safe_load((RUN / "config.yaml").read_text())["seed"] == results.seed
    with safe_open(str(RUN / "head.safetensors"), framework="pt") as file:
        assert json.loads(file.metadata()["class_names"]) == results.class_names
        assert file.metadata()["encoder"] == results.encoder
        assert file.get_tensor("classifier.weight").shape == (12, 16)
    log = (RUN / "log.txt").read_text()
    assert {"round 0", "round 3"} <= set(re.findall(r"round \d", log))
    assert {"AVG", "STD", "art"} <= set(re.findall(r"\w+", shown.out))
    assert re.search(r"round 0: .* MB .* s\b", shown.err)


@pytest.mark.slow
def test_rounds_are_counted_only_if_they_come(short, ggeur):
    """With the threshold 1 every class is sent, and nothing is trained."""
    settings = {
        "data.splitter": "iid",
        "data.splitter_args": "[]",
        "ggeur.closed_form": "auto",
        "ggeur.init": "closed_form",
        "ggeur.keep": "best",
        "ggeur.privacy.min_samples": 1,
    }
    said = ggeur(*short, *(str(one) for pair in settings.items() for one in pair)).err
    tried = re.findall(r"trying heads on left-out rows: row (\d+) of (\d+)", said)
    assert tried[-1] == ("227", "227")
    assert "nothing is trained" in said
    assert not re.search(r"round \d+ of 3", said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [f"=art\n{FORGED}\r\x1b[2J\u202e", "caf\udce9 <b>"],
    ids=["controls", "not UTF-8"],
)
def test_a_domain_may_be_called_anything(short, embeddings_folder, ggeur, name):
    """Nothing that is shown or logged has a line more for it, and results.json has the
    name as it is."""
    harmless = ggeur(*short)
    log = (RUN / "log.txt").read_text()
    RUN.rename("harmless")
    (embeddings_folder / "art.npz").rename(embeddings_folder / f"{name}.npz")
    shown = ggeur(*short)
    ours = (RUN / "log.txt").read_text()
    for found, before in (
        (shown.out, harmless.out), (shown.err, harmless.err), (ours, log),
    ):  # fmt: skip
        assert len(found.splitlines()) == len(before.splitlines())
        assert not hidden_in(found)
    assert name in read_results().domains


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_statistics_of_single_clients_are_the_owner_s_alone(short, ggeur):
    """Checkpoints are private; monitors and groups can read what is passed on."""
    umask = os.umask(0o022)
    try:
        place = str(Path("kept") / "run")
        state = ["ggeur.base_method", "scaffold"]
        assert "do not pass on private/" in ggeur(*short, *state).err
        assert main([*short, *state, "federate.save_to", place]) == 0
    finally:
        os.umask(umask)

    def modes(*paths: Path) -> set[int]:
        return {path.stat().st_mode & 0o777 for path in paths}

    private = [*(RUN / "private").rglob("*"), *Path("kept").rglob("*")]
    assert len(private) == 2 * 6
    assert modes(RUN / "private", *filter(Path.is_dir, private)) == {0o700}
    assert modes(*filter(Path.is_file, private)) == {0o600}
    assert modes(*(path for path in RUN.iterdir() if path.is_file())) == {0o644}


def test_a_run_that_cannot_start_leaves_nothing(short, ggeur):
    assert "nowhere" in ggeur(*short, "data.root", "nowhere", status=1).err
    assert not Path("exp").exists()


@pytest.fixture
def break_off(monkeypatch):
    """Make every run raise an error when so many rounds are over."""

    def break_off(error, after, patch=monkeypatch):
        whole = EmbeddedEngine.run

        def run(engine):
            yield from itertools.islice(whole(engine), 1 + after)
            raise error

        patch.setattr(EmbeddedEngine, "run", run)

    return break_off


#: Errors, the rounds that are over by then, the status that is left, and what is said.
STOPS = {
    "at once": (ConfigError("a bad rate"), 0, "failed", "ConfigError: a bad rate"),
    "later": (DataError("a bad peer"), 2, "failed", "DataError: a bad peer"),
    "by a person": (KeyboardInterrupt(), 2, "interrupted", "after 2 of 3"),
    "by one, at once": (KeyboardInterrupt(), 0, "interrupted", "after 0 of 3"),
}


@pytest.mark.parametrize(
    "how",
    [
        "at once",
        *(pytest.param(how, marks=pytest.mark.slow) for how in list(STOPS)[1:]),
    ],
)
def test_a_run_that_ends_early_leaves_the_rounds_it_has(short, break_off, ggeur, how):
    error, after, status, told = STOPS[how]
    break_off(error, after)
    shown = ggeur(*short, status=1 if status == "failed" else 130)
    log = (RUN / "log.txt").read_text()
    assert f"{status} after {after} of 3" in log
    assert told in log
    assert "Traceback" not in log
    assert shown.err.count(str(error) or "interrupted after") == 1
    left = {file.name for file in RUN.iterdir()}
    if not after:
        assert left == {"config.yaml", "log.txt", *CHECKPOINT}
        assert "no results" in shown.err
        assert "AVG" not in shown.out
        return
    assert left == FILES
    assert (read_results().status, len(read_results().rounds)) == (status, after)
    assert f"{status} after round {after}" in shown.out


@pytest.mark.slow
def test_a_bug_keeps_its_traceback_and_the_rounds(short, break_off):
    break_off(RuntimeError("a bug"), after=1)
    with pytest.raises(RuntimeError, match="a bug"):
        main(short)
    assert read_results().status == "failed"
    log = (RUN / "log.txt").read_text()
    assert "ERROR failed after 1 of 3 rounds: RuntimeError: a bug" in log
    assert "Traceback" in log
    assert f"to go on once the cause is mended: cd {Path.cwd()} && ggeur --cfg" in log


@pytest.mark.slow
def test_the_command_that_is_told_goes_on_to_the_same_end(
    short, break_off, ggeur, monkeypatch, tmp_path
):
    own = ["ggeur.base_method", "scaffold"]
    own += ["federate.save_to", str(tmp_path / "kept here" / "checkpoint")]
    assert main([*short, *own[:2], "expname", "whole"]) == 0
    with monkeypatch.context() as stopped:
        break_off(KeyboardInterrupt(), after=2, patch=stopped)
        said = ggeur(*short, *own, status=130).err
    told = re.search(r"to go on: cd .* && ggeur (.*)", said)
    assert "goes on after round 2" in ggeur(*shlex.split(told[1])).err
    (again,) = RUN.glob("sub_exp_*")
    whole, resumed = (
        numbers(read_results(folder)) for folder in (Path("exp/whole"), again)
    )
    assert resumed["rounds"] == whole["rounds"]
    assert resumed["final"] == whole["final"]


@pytest.mark.slow
def test_without_seconds_there_is_no_checkpoint(short, break_off, ggeur):
    break_off(KeyboardInterrupt(), after=2)
    said = ggeur(*short, "ggeur.checkpoint_every", -1, status=130).err
    assert {file.name for file in RUN.iterdir()} == FILES - CHECKPOINT
    assert "to go on" not in said


@pytest.mark.slow
def test_another_run_s_checkpoint_is_named_before_data_are_read(short, ggeur, tmp_path):
    """That it stays: tests/federation/course/test_checkpoint.py."""
    both = [*short, "federate.save_to", str(tmp_path / "kept")]
    ggeur(*both)
    said = ggeur(*both, "data.root", "nowhere", status=1).err
    assert re.match(
        r"error: federate.save_to: '.*kept' is a checkpoint of another run", said
    )
    assert said.count("\n") == 1
    assert main([*both, "federate.restore_from", str(tmp_path / "kept")]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("first", [None, KeyboardInterrupt(), DataError("bad")])
def test_a_signal_does_not_break_off_the_writing(short, break_off, monkeypatch, first):
    def write(folder, results, head, own):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        write_run(folder, results, head, own)

    monkeypatch.setattr(console, "write_run", write)
    if first is not None:
        break_off(first, after=1)
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    main(short)
    assert {file.name for file in RUN.iterdir()} == FILES
    after = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    assert after == before


@pytest.mark.parametrize("error", [None, DataError("the cause")])
def test_files_that_cannot_be_written_are_named(
    short, break_off, monkeypatch, ggeur, error
):
    def write(folder, results, head, own):
        (folder / "metrics.csv").mkdir()
        write_run(folder, results, head, own)

    monkeypatch.setattr(console, "write_run", write)
    if error is not None:
        break_off(error, after=1)
    shown = ggeur(*short, status=1).err
    assert "metrics.csv" in (RUN / "log.txt").read_text()
    assert (RUN / "head.safetensors").exists()
    assert "metrics.csv" in shown
    assert ("error: the cause" in shown) == (error is not None)


def test_a_log_that_cannot_be_opened_is_named(short, monkeypatch, ggeur):
    def blocked(outdir, expname):
        folder = new_run_folder(outdir, expname)
        (folder / "log.txt").mkdir()
        return folder

    monkeypatch.setattr(console, "new_run_folder", blocked)
    assert re.search(r"error: cannot write .*log\.txt", ggeur(*short, status=1).err)


@pytest.mark.slow
@pytest.mark.parametrize(("terminal", "verbose"), [(True, 1), (False, 1), (True, 0)])
def test_a_bar_for_a_person_and_lines_for_a_log(
    short, monkeypatch, ggeur, terminal, verbose
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    shown = ggeur(*short, "verbose", verbose)
    assert ("round/s" in shown.err) == (terminal and verbose == 1)
    lines = re.findall(r"^round (\d+) of 3: AVG .* memory$", shown.err, re.MULTILINE)
    assert bool(lines) == (not terminal)
    assert "AVG" in shown.out
    assert bool(shown.err) == bool(verbose)


DETAIL, RUNNING, WARNED = "round 1: clients", "run folder", "interrupted after 1 of 3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [
        ([], ["--log-level", "debug"], [DETAIL, RUNNING, WARNED]),
        ([], ["--log-level", "info"], [RUNNING, WARNED]),
        (["--quiet"], [], [WARNED]),
        ([], ["--quiet"], [WARNED]),
        ([], ["--log-level", "error"], []),
    ],
    ids=str,
)
def test_the_console_shows_from_a_level_on(
    short, break_off, ggeur, before, behind, told
):
    break_off(KeyboardInterrupt(), after=1)
    shown = ggeur(*before, *short, *behind, status=130)
    assert [text for text in (DETAIL, RUNNING, WARNED) if text in shown.err] == told
    assert bool(shown.err) == bool(told)
    assert shown.out.count("STD") == 1, "the table is printed, not logged"
    assert "round 1 of 3: AVG" in (RUN / "log.txt").read_text()


@pytest.mark.slow
def test_a_terminated_run_writes_the_rounds_it_has(short, tmp_path):
    many = [*short, "federate.total_round_num", "1000000"]
    process = forked(many, tmp_path / "said")
    log = tmp_path / "exp" / "ggeur_quickstart" / "log.txt"
    until(lambda: log.exists() and "round 3" in log.read_text(), process)
    process.terminate()
    process.join(PATIENCE)
    said = (tmp_path / "said").read_text()
    assert process.exitcode == 130, said
    results = read_results(log.parent)
    assert results.status == "interrupted"
    assert len(results.rounds) >= 3
    assert "interrupted" in said
