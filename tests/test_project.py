"""The project's own files agree with each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from federatedscope_ggeur import __version__
from federatedscope_ggeur.cfg_ggeur.load import load_config

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "federatedscope_ggeur"
#: DESIGN, section 3: a room may import itself, what stands here, and nothing else.
FLOORS = {
    "errors": set(),
    "rng": set(),
    "cfg_ggeur": {"errors"},
    "geometry": {"errors", "rng"},
    "heads": {"errors", "rng", "geometry"},
    "methods": {"errors", "rng", "geometry", "heads"},
    "federation": {"errors", "rng", "geometry", "heads", "methods"},
    "data": {"errors", "rng"},
    "reporting": {"errors", "rng"},
    "engines": {
        "errors", "rng", "cfg_ggeur", "geometry", "heads", "methods", "federation",
        "data", "reporting",
    },
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(ROOT.glob("scripts/example_configs/*.yaml")))
def test_every_example_config_loads(path):
    assert load_config(path).ggeur.use


@pytest.mark.parametrize("name", ["run", "tests"])
def test_the_readme_marks_its_commands(name):
    script = ROOT / ".ci" / "readme_command.py"
    command = subprocess.run(
        [sys.executable, script, name, ROOT / "README.md"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pip install" in command


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changes
    assert f"## [{__version__}]" in changes


@pytest.mark.parametrize("room", FLOORS)
def test_arrows_run_downward_only(room):
    folder = PACKAGE / room
    files = folder.rglob("*.py") if folder.is_dir() else [PACKAGE / f"{room}.py"]
    allowed = FLOORS[room] | {room}
    for file in files:
        for name in _imported_rooms(file):
            assert name in allowed, f"{file} must not import {name}"


def _imported_rooms(file: Path):
    prefix = "federatedscope_ggeur."
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports stand in full"
            names = [node.module or ""]
        yield from (
            n[len(prefix) :].split(".")[0] for n in names if n.startswith(prefix)
        )
