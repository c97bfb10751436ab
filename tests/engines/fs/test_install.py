"""Enabling and disabling, on folders that look like FederatedScope.

Tests of engines/fs/install.py and of engines/fs/loader.py, which is what FS imports.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fake_checkout import FILES
from own_process import python

from federatedscope_ggeur.engines.fs import install
from federatedscope_ggeur.engines.fs.install import disable, enable, is_enabled
from federatedscope_ggeur.errors import ConfigError

ROOT = Path(__file__).parents[3]


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("inner", ["", "federatedscope"])
def test_enable_and_disable_leave_nothing_behind(checkout, inner):
    folder, before = checkout / inner, files_in(checkout)
    package = checkout / "federatedscope"
    assert not is_enabled(package)
    assert enable(folder).startswith("enabled: ")
    assert is_enabled(package)
    (new,) = files_in(checkout) - before
    assert new.parent == checkout / "federatedscope" / "contrib" / "configs"
    assert enable(folder) == f"already enabled: {new}"
    compiled = new.parent / "__pycache__" / f"{new.stem}.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.touch()
    other = compiled.with_name("__init__.cpython-311.pyc")
    other.touch()
    assert disable(folder) == f"disabled: {new} is removed"
    assert disable(folder).startswith("not enabled")
    assert files_in(checkout) == before | {other}


def test_another_version_is_updated(checkout):
    enable(checkout)
    file = install.plugin_file(checkout / "federatedscope")
    file.write_text(file.read_text().replace("version ", "version 9"))
    assert not is_enabled(checkout / "federatedscope")
    assert enable(checkout) == f"updated: {file}"
    assert "version 9" not in file.read_text()


def test_a_file_of_someone_else_is_never_touched(checkout):
    file = install.plugin_file(checkout / "federatedscope")
    file.write_text("mine = 1\n")
    for change in (enable, disable):
        with pytest.raises(ConfigError, match="was not written by this program"):
            change(checkout)
    assert file.read_text() == "mine = 1\n"


@pytest.mark.parametrize("name", FILES[1:])
def test_a_folder_that_is_not_federatedscope_is_refused(checkout, name):
    (checkout / "federatedscope" / name).unlink()
    with pytest.raises(ConfigError, match=r"is no FederatedScope.*git clone"):
        enable(checkout)


def test_a_folder_that_cannot_be_written_to(checkout, monkeypatch):
    def refuse(path, *more):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(ConfigError, match=r"cannot write.*--engine feder"):
            enable(checkout)
    assert not is_enabled(checkout / "federatedscope")
    enable(checkout)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(ConfigError, match=r"cannot remove.*disable again"):
        disable(checkout)
    assert is_enabled(checkout / "federatedscope")


def test_without_a_folder_the_environment_variable_counts(found_by_home):
    assert install.find() == (found_by_home / "federatedscope").resolve()
    assert str(found_by_home) in enable()


RUN_FILE = """\
import logging, runpy, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
sys.path += sys.argv[2:]
runpy.run_path(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("paths", "line"),
    [
        ([], "INFO federatedscope_ggeur is not installed; running without it"),
        # Whichever it needs first: numpy, torch.
        ([ROOT], "WARNING running without federatedscope_ggeur: No module named '"),
    ],
)
def test_federatedscope_runs_on_without_the_plugin(checkout, paths, line):
    enable(checkout)
    file = install.plugin_file(checkout / "federatedscope")
    # -I and -S: without the packages that are installed here.
    done = python("-I", "-S", "-c", RUN_FILE, file, *paths)
    assert done.returncode == 0, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith(line)


#: What is in the place of the plugin, and the cause that is told.
BROKEN = {
    "def (:": "invalid syntax (SyntaxError in {file}, line 1)",
    "raise RuntimeError('one\\ntwo')": "one two (RuntimeError in {file}, line 1)",
    "raise SystemExit": " (SystemExit in {file}, line 1)",
    "def register():\n    assert 0": " (AssertionError in {file}, line 2)",
}


@pytest.fixture
def run_file(checkout, tmp_path):
    """Run what `enable` writes, with another plugin than this one."""
    enable(checkout)
    file = install.plugin_file(checkout / "federatedscope")
    plugin = tmp_path / "plugin" / "federatedscope_ggeur" / "engines" / "fs"
    plugin.mkdir(parents=True)
    for package in (plugin.parent, plugin.parents[1]):
        (package / "__init__.py").touch()
    site = Path(yaml.__file__).parents[1]

    def started(source: str, words=()) -> tuple[Path, subprocess.CompletedProcess]:
        (plugin / "__init__.py").write_text(source)
        start = "import runpy, sys; sys.path[:0] = sys.argv[2:4]; file = sys.argv[1]; "
        start += "del sys.argv[1:4]; runpy.run_path(file); print('goes on')"
        done = python("-c", start, file, plugin.parents[2], site, *words, cwd=tmp_path)
        return plugin / "__init__.py", done

    return started


@pytest.mark.parametrize("source", BROKEN)
def test_federatedscope_runs_on_whatever_is_wrong_with_the_plugin(run_file, source):
    words = ("--cfg", "nowhere.yaml", "outdir", "ggeur", "data.type", "toy")
    file, done = run_file(source, words)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    (line,) = done.stderr.splitlines()
    cause = BROKEN[source].format(file=file)
    assert line.startswith(f"running without federatedscope_ggeur: {cause}")


def test_what_the_plugin_says_of_a_user_s_module_is_said_alone(run_file):
    source = "def register():\n    raise SystemExit('error: ggeur.plugins: no')"
    _, done = run_file(source, ("ggeur.plugins", "['no']"))
    assert (done.returncode, done.stderr) == (1, "error: ggeur.plugins: no\n")


# ``ggeur enable`` and ``disable``.


def test_the_commands_say_what_to_type(checkout, ggeur):
    done, run = ggeur("enable", checkout).out.splitlines()
    assert done.startswith("enabled: ")
    main_file = checkout.resolve() / "federatedscope" / "main.py"
    assert run.startswith(f"run: PYTHONPATH='{checkout.resolve()}")
    assert run.endswith(f"python '{main_file}' --cfg FILE.yaml")
    assert ggeur("disable", checkout).out.startswith("disabled: ")


# What ``ggeur doctor`` says of FederatedScope.


def test_it_tells_the_state_and_the_command_that_repairs_it(ggeur, found_by_home):
    shown = ggeur("doctor").out
    assert "plugin: not enabled" in shown
    package = found_by_home.resolve() / "federatedscope"
    assert f"ggeur enable '{package}'" in shown
    install.enable(found_by_home)
    shown = ggeur("doctor").out
    assert "plugin: enabled\n" in shown
    assert f"run: {install.run_command(found_by_home)}" in shown


def test_it_names_the_packages_that_federatedscope_lacks(
    ggeur, found_by_home, monkeypatch
):
    for module in ("pympler", "google.protobuf"):
        monkeypatch.setitem(sys.modules, module, None)
    missing = ggeur("doctor").out.split("MISSING for FederatedScope: ")[1]
    assert {"pympler", "protobuf"} <= set(missing.splitlines()[0].split(", "))
    assert "federatedscope-ggeur[federatedscope]" in missing
