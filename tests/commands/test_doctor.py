"""``ggeur doctor``: its report, and that nothing broken stops it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from own_process import PATIENCE

import federatedscope_ggeur
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands.doctor import diagnose

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(capsys):
    """What the command prints, which finds nothing wrong unless said."""

    def ask(status: int = 0) -> str:
        assert main(["doctor"]) == status
        return capsys.readouterr().out

    return ask


def test_it_says_what_is_there(report):
    shown = report()
    assert "torch: " in shown
    assert "weights for images: open_clip ViT-B-16, openai: " in shown


def test_it_says_what_is_missing_and_how_to_get_it(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = report(status=1)
    assert "MISSING matplotlib" in shown
    assert "pip install matplotlib" in shown


def test_lines_come_one_by_one():
    version = next(diagnose())[0]
    assert version.startswith(
        f"federatedscope_ggeur {federatedscope_ggeur.__version__}"
    )


def start(tmp_path, torch: str) -> subprocess.Popen:
    """doctor, where importing torch runs `torch`."""
    (tmp_path / "torch.py").write_text(torch)
    return subprocess.Popen(
        [sys.executable, "-m", "federatedscope_ggeur", "doctor"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_first_lines_come_before_torch(tmp_path):
    process = start(tmp_path, "import time\ntime.sleep(10_000)\n")
    try:
        # A pipe: what is read here has been flushed.
        assert process.stdout.readline().startswith("federatedscope_ggeur ")
        assert process.stdout.readline().startswith("Python ")
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_torch_that_does_not_work_is_named(tmp_path, error):
    process = start(tmp_path, f"raise {error}('no such library')\n")
    report, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "MISSING torch: " in report
    assert "no such library" in report
    assert "accelerator: unknown without torch" in report
    assert not errors
