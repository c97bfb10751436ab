"""What is not Python code is in what gets installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STUDIES = "federatedscope_ggeur/extras/studies"
#: Folder of the package -> where its files are in a checkout.
DATA = {
    ".": ("federatedscope_ggeur", "py.typed"),
    "cfg_ggeur": ("federatedscope_ggeur/cfg_ggeur", "*.yaml"),
    "commands": ("federatedscope_ggeur/commands", "*.json"),
    "extras/text": ("federatedscope_ggeur/extras/text", "*.txt"),
    "example_configs": ("scripts/example_configs", "*.yaml"),
    "study_files": ("scripts/studies", "*.yaml"),
    "extras/studies/comparison": (f"{STUDIES}/comparison", "*.css"),
    "extras/studies/paper/tables": (f"{STUDIES}/paper/tables", "*"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The package's folder as an installation has it, built as a wheel's is."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip(f"setuptools {setuptools.__version__} reads no such pyproject.toml")
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [
            *(sys.executable, "setup.py", "-q", "egg_info", "-e", folder),
            *("build", "--build-base", folder / "base"),
            *("build_py", "--build-lib", folder / "lib"),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder / "lib" / "federatedscope_ggeur"


@pytest.mark.parametrize("place", DATA)
def test_data_files_are_installed(built, place):
    source, pattern = DATA[place]
    expected = {path.name for path in (ROOT / source).glob(pattern)}
    assert expected
    assert {path.name for path in (built / place).glob(pattern)} == expected
