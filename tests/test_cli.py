"""The commands, as a user types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.reporting import Results, numbers

ROOT = Path(__file__).parent.parent


@pytest.fixture
def short(embeddings_folder, tmp_path, monkeypatch):
    """Arguments of a short run whose output goes below the test's folder."""
    monkeypatch.chdir(tmp_path)
    return [
        "--cfg", "ggeur_quickstart.yaml",
        "data.type", "embeddings@ggeur",
        "data.root", str(embeddings_folder),
        "federate.client_num", "3",
        "federate.total_round_num", "3",
        "data.splitter_args", "[{'alpha': 1.0}]",
    ]  # fmt: skip


def test_a_run_leaves_files_that_a_person_and_a_program_can_read(short, capsys):
    assert main(short) == 0
    folder = Path("exp/ggeur_quickstart")
    assert {file.name for file in folder.iterdir()} == {
        "results.json", "metrics.csv", "curve.png", "head.safetensors", "log.txt",
        "config.yaml",
    }  # fmt: skip
    results = Results.from_json((folder / "results.json").read_text())
    assert len(results.rounds) == 3
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed"] == results.seed
    with safe_open(str(folder / "head.safetensors"), framework="pt") as file:
        assert json.loads(file.metadata()["class_names"]) == results.class_names
        assert file.metadata()["encoder"] == results.encoder
        assert file.get_tensor("classifier.weight").shape == (12, 16)
    log = (folder / "log.txt").read_text()
    assert "round 0" in log
    assert "round 3" in log

    shown = capsys.readouterr()
    assert "AVG" in shown.out
    assert "STD" in shown.out
    assert "art" in shown.out
    assert re.search(r"round 0: .* MB .* s\b", shown.err)


def test_nothing_is_ever_written_over(short):
    assert main(short) == 0
    first = Path("exp/ggeur_quickstart/results.json").read_bytes()
    assert main(short) == 0
    again = list(Path("exp/ggeur_quickstart").glob("sub_exp_*/results.json"))
    assert len(again) == 1
    assert Path("exp/ggeur_quickstart/results.json").read_bytes() == first
    mine, theirs = (
        Results.from_json(text.decode()) for text in (first, again[0].read_bytes())
    )
    assert numbers(mine) == numbers(theirs)


def test_a_run_that_cannot_start_leaves_nothing(short, capsys):
    assert main([*short, "data.root", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert not Path("exp").exists()


def test_a_run_that_breaks_off_says_why_in_its_log(short, capsys):
    assert main([*short, "train.optimizer.lr", "1e30"]) == 1
    assert "train.optimizer.lr" in capsys.readouterr().err
    folder = Path("exp/ggeur_quickstart")
    assert "diverged" in (folder / "log.txt").read_text()
    assert not (folder / "results.json").exists()


def test_unnamed_experiments_are_named_as_fs_names_them(short):
    assert main([*short, "expname", "", "expname_tag", "mine"]) == 0
    (folder,) = Path("exp").iterdir()
    assert folder.name == "ggeur_ggeur_head_on_embeddings@ggeur_lr0.01_lstep1_mine"


def test_a_terminated_run_writes_the_rounds_it_has(short, tmp_path):
    many = [*short, "federate.total_round_num", "1000000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "federatedscope_ggeur", *many],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    log = tmp_path / "exp" / "ggeur_quickstart" / "log.txt"
    for _ in range(600):
        if log.exists() and "round 3" in log.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output.decode()
    results = Results.from_json((log.parent / "results.json").read_text())
    assert len(results.rounds) >= 3
    assert "interrupted" in output.decode()


def test_wrong_settings_exit_with_1_and_no_traceback(capsys):
    assert main(["--cfg", "ggeur_quickstart.yaml", "no.such", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error:")
    assert "no.such" in error


def test_help_and_no_arguments(capsys):
    assert main([]) == 2
    assert "configs" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0


def test_configs_lists_and_copies(tmp_path, capsys):
    assert main(["configs"]) == 0
    assert "ggeur_quickstart.yaml" in capsys.readouterr().out
    assert main(["configs", str(tmp_path / "mine")]) == 0
    copied = tmp_path / "mine" / "ggeur_quickstart.yaml"
    assert copied.is_file()
    copied.write_text("changed")
    assert main(["configs", str(tmp_path / "mine")]) == 1
    assert "ggeur_quickstart.yaml" in capsys.readouterr().err
    assert copied.read_text() == "changed"


def test_keys_lists_every_setting(capsys):
    assert main(["keys"]) == 0
    assert "ggeur.privacy.min_samples = 5\n" in capsys.readouterr().out


def test_doctor_says_what_is_there(capsys):
    assert main(["doctor"]) == 0
    report = capsys.readouterr().out
    assert "torch: " in report
    assert "FederatedScope" in report


def test_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["doctor"]) == 1
    report = capsys.readouterr().out
    assert "MISSING matplotlib" in report
    assert "pip install matplotlib" in report
