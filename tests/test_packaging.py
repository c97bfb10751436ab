"""What is not Python code is in what gets installed."""

import ast
import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from federatedscope_ggeur.commands import COMMANDS, find_command

ROOT = Path(__file__).parent.parent
STUDIES = "federatedscope_ggeur/extras/studies"
#: Folder of the package -> where its files are in a checkout.
DATA = {
    ".": ("federatedscope_ggeur", "py.typed"),
    "cfg_ggeur": ("federatedscope_ggeur/cfg_ggeur", "*.yaml"),
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
    done = subprocess.run(
        [
            *(sys.executable, "setup.py", "-q", "egg_info", "-e", folder),
            *("build", "--build-base", folder / "base"),
            *("build_py", "--build-lib", folder / "lib"),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    # pip shows such a warning to whoever installs the package.
    assert "would be ignored" not in done.stderr
    return folder / "lib" / "federatedscope_ggeur"


@pytest.mark.parametrize("place", DATA)
def test_data_files_are_installed(built, place):
    source, pattern = DATA[place]
    expected = {path.name for path in (ROOT / source).glob(pattern)}
    assert expected
    assert {path.name for path in (built / place).glob(pattern)} == expected


# Files for systemd and containers: they start commands that there are.
#
# No container is built here. What was tried by hand stands in docs/sites.md.


DEPLOY = Path(__file__).parents[1] / "scripts" / "deploy"
UNITS = ("ggeur-serve.service", "ggeur-join.service")


def check_command(words: list[str]) -> None:
    """The command is there, and takes these options."""
    name, *options = words
    assert name in COMMANDS
    assert options[0] == "--cfg"
    with pytest.raises(SystemExit) as ended:
        find_command(name)(["--help"])
    assert ended.value.code == 0


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_there_is(name):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / name)
    program, *words = unit["Service"]["ExecStart"].split()
    assert program.endswith("/bin/ggeur")
    check_command(words)
    assert unit["Service"]["KillSignal"] == "SIGTERM"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit(name, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which reads units, is missing")
    text = (DEPLOY / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/ggeur/bin/ggeur", sys.executable))
    command = ["systemd-analyze", "verify", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, name in done.stderr) == (0, False), done.stderr


def test_a_container_starts_a_command_that_there_is_and_is_asked_how_it_is():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        check_command(service["command"])
        assert (DEPLOY / service["build"]["dockerfile"]).is_file()
    text = (DEPLOY / "Containerfile").read_text()
    check_command(re.search(r"ggeur (healthy --cfg)", text)[1].split())
    assert "USER federation" in text


# What docs/paper_to_code.md names exists, and it names all of the paper's parts.


TEXT = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")


def named() -> dict[str, set[str]]:
    """Every path in the page's tables, with the names that follow it."""
    found, path = {}, ""
    for line in TEXT.splitlines():
        for span in re.findall(r"`([^`]+)`", line) if line.startswith("|") else ():
            if "/" in span:
                path = span
                found.setdefault(path, set())
            elif not re.match(r"(ggeur|federate|data)\.", span):
                found[path].add(span)
    return found


NAMED = named()


def file_at(path):
    places = (ROOT / "federatedscope_ggeur" / path, ROOT / path)
    return next((place for place in places if place.is_file()), None)


def definitions(path):
    def walk(body, prefix=""):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{node.name}.")

    return set(walk(ast.parse(path.read_text(encoding="utf-8")).body))


@pytest.mark.parametrize("path", sorted(NAMED))
def test_each_file_exists_and_defines_what_is_named(path):
    file = file_at(path)
    assert file is not None
    if NAMED[path]:
        assert NAMED[path] <= definitions(file)


@pytest.mark.parametrize(
    ("kind", "last"), [("Eq.", 5), ("Algorithm", 2), ("Table", 11), ("Figure", 9)]
)
def test_all_of_the_paper_is_there(kind, last):
    numbers = set()
    for words in re.findall(rf"\| {re.escape(kind)}s? ([^:|]+)[:|]", TEXT):
        first = list(map(int, re.findall(r"\d+", words.split("(")[0])))
        numbers |= set(range(first[0], first[1] + 1)) if " to " in words else {*first}
    assert numbers == set(range(1, last + 1))


def test_the_algorithms_are_named_where_they_stand():
    code = file_at("geometry/augmentation.py").read_text(encoding="utf-8")
    for number in (1, 2):
        assert f"Algorithm {number}" in code
