"""Every command, setting and snippet of the README and the docs is tried.

What cannot be run here says why, in a comment before its block; its options and keys
are tried all the same.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from asked_parser import parser_of
from documented import FILES, PROGRAMS, ROOT, blocks, commands
from own_process import OF_A_RUN, PATIENCE, in_turn, python
from study_on_disk import forked_workers, two_seeds

import federatedscope_ggeur
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands import COMMANDS, console, dry_run, find_command
from federatedscope_ggeur.commands.run import run
from federatedscope_ggeur.extras.studies import study_file
from federatedscope_ggeur.extras.studies.running import StudyRun
from federatedscope_ggeur.extras.studies.study_file import load_study
from federatedscope_ggeur.reporting import write_run
from federatedscope_ggeur.settings import flatten

EXAMPLES = ROOT / "scripts" / "example_configs"
BLOCKS = list(blocks())
#: Pages with files of their own, or a book: they are followed from top to bottom.
PAGES = sorted(
    {
        block.file
        for block in BLOCKS
        if block.file_name.endswith(".py")
        or block.file.name.startswith(("tutorial_", "living"))
    }
)
#: A page has those that run, in order with all else.
SHELL = [b for b in BLOCKS if b.is_shell and not (b.runs and b.file in PAGES)]
YAML = [b for b in BLOCKS if b.language == "yaml" and b.runs and not b.file_name]
#: What a file's snippets take for granted.
BEFORE = {
    "results.md": "from federatedscope_ggeur.cli import main\n"
    "main(['--cfg', 'ggeur_quickstart.yaml', 'expname', 'my_run', '--quiet'])\n"
    "from federatedscope_ggeur import Results\n"
    "from pathlib import Path\n"
    "file = Path('exp/my_run/results.json')\n"
    "other_results = Results.from_json(file.read_text())\n"
}


def named(found):
    return {"argvalues": found, "ids": [block.name for block in found]}


def plugins_of(block) -> list[str]:
    """The modules that a block of YAML names."""
    return yaml.safe_load(block.text).get("ggeur", {}).get("plugins", [])


def test_every_block_is_of_a_kind_that_is_tried():
    """Others hold no command: what a run prints, and a comparison of files."""
    tried = ("yaml", "python")
    others = [b for b in BLOCKS if not b.is_shell and b.language not in tried]
    assert {b.language for b in others} <= {"", "diff"}
    calls = re.compile(rf"^(?:{'|'.join(PROGRAMS)}) ", re.MULTILINE)
    assert not [b.name for b in others if calls.search(b.text)]
    fences = sum(file.read_text().count("\n```") for file in FILES)
    assert 2 * len(BLOCKS) == fences, "a fence that is not found is not tried"
    assert all(block.reason for block in BLOCKS if not block.runs)


SHOWN = [
    *FILES,
    *sorted((ROOT / "scripts").rglob("*.yaml")),
    *sorted((ROOT / "federatedscope_ggeur").rglob("*.py")),
]
#: A setting behind a command, or an extra of a package, with a bracket in no quotes.
_BARE = re.compile(
    r"(?<![\w.])(?:ggeur|data|federate|train|eval|model)\.[a-z_0-9.]+ \["
    r"|pip install (?:-\w+ )*[^\s\"']*\["
)


def test_no_shown_command_has_a_bare_bracket():
    """zsh, the shell of macOS, takes it for a pattern of file names."""
    lines = [
        (file.name, line)
        for file in SHOWN
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    assert [line for line in lines if _BARE.search(line[1])] == []
    words = [
        (block.name, word)
        for block in BLOCKS
        if block.is_shell and block.reason != "a synopsis"
        for command in commands(block)
        for word in shlex.split(command, posix=False)
    ]
    assert [w for w in words if w[1][0] not in "\"'" and set("[]*?") & set(w[1])] == []


@pytest.fixture
def place(tmp_path, monkeypatch, embeddings_folder):
    """A folder with what the commands name: FOLDER and X.yaml."""
    embeddings_folder.rename(tmp_path / "FOLDER")
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "ggeur_quickstart.yaml", "X.yaml")
    return tmp_path


@pytest.mark.parametrize("block", **named(SHELL))
@pytest.mark.usefixtures("place")
def test_options_and_keys_are_known(block, monkeypatch):
    runs = []
    for module, name in ((console, "run_with_files"), (dry_run, "show_forecast")):
        monkeypatch.setattr(module, name, lambda *given: runs.append(given) or 0)
    for command in commands(block):
        words = shlex.split(command.split(" > ")[0])
        ours = _words_of_ours(words)
        if ours is None:
            if "--cfg" in words or words[0] == "...":
                _check_keys(words)
        elif block.reason == "a synopsis":
            _check_synopsis(ours)
        elif ours[0] in COMMANDS:
            options = parser_of(find_command(ours[0])).parse_intermixed_args(ours[1:])
            # The file of `serve` is one of a federation's, which is not here.
            has_settings = ours[0] != "serve" and hasattr(options, "settings")
            if getattr(options, "cfg", None) and has_settings:
                load_config(options.cfg, options.settings)
            if ours[0] == "study":
                load_study(options.file, options.settings)
        elif "federatedscope" in ours:  # FS reads the settings then
            _check_keys(ours)
        else:
            before = len(runs)
            assert run(ours) == 0
            assert len(runs) == before + 1, command


def _words_of_ours(words):
    """The words behind the program, if that is ours."""
    if words[0] in PROGRAMS:
        return words[1:]
    if words[:3] == ["python", "-m", "federatedscope_ggeur"]:
        return words[3:]
    return None


def _check_keys(words):
    """The settings behind ``--cfg FILE``, or behind an omission, have known keys."""
    at = words.index("--cfg") + 2 if "--cfg" in words else 1
    settings, known = words[at:], dict(flatten(default_config()))
    assert len(settings) % 2 == 0
    # FS has keys for its streams that the embedded engine has no use for.
    ours = {key for key in settings[::2] if not key.startswith("distribute.")}
    assert ours <= set(known)


def _check_synopsis(words):
    parser = parser_of(find_command(words[0]))
    known = {option for one in parser._actions for option in one.option_strings}
    named = set(re.findall(r"--\w[\w-]*", " ".join(words)))
    assert named
    assert named <= known


@pytest.mark.parametrize("block", **named([b for b in YAML if not plugins_of(b)]))
def test_settings_in_yaml_are_taken(block, place):
    content = yaml.safe_load(block.text)
    if "axes" in content:
        (place / "study.yaml").write_text(block.text)
        # It checks the settings of every run.
        assert StudyRun(load_study(place / "study.yaml")).plan.cells()
    else:
        load_config("ggeur_quickstart", content)


@pytest.mark.slow
@pytest.mark.parametrize("block", **named([b for b in YAML if plugins_of(b)]))
def test_settings_of_plugins_are_taken(block, place):
    """In a process of its own: what a plugin registers stays."""
    content = yaml.safe_load(block.text)
    for name in plugins_of(block):
        (code,) = (b for b in BLOCKS if b.text.startswith(f"# {name}.py\n"))
        (place / f"{name}.py").write_text(code.text)
    content["data"] = {"type": "digits_quickstart@ggeur"}
    content["federate"] = {"method": "ggeur"}
    (place / "my.yaml").write_text(yaml.safe_dump(content))
    load = "from federatedscope_ggeur import load_config; load_config('my.yaml')"
    done = python("-c", load, cwd=place)
    assert done.returncode == 0, done.stderr


#: Behind commands that train: their rounds are tried elsewhere.
FEW_ROUNDS = ["federate.total_round_num", "2"]


def calls_of(file: Path, place: Path) -> list[list[str]]:
    """Write what names itself a file; the scripts and commands of a page, in order."""
    calls = []
    for block in (b for b in BLOCKS if b.file == file and b.runs):
        if block.file_name:
            (place / block.file_name).write_text(block.text)
        elif block.language == "python":
            calls.append(["-c", block.text])
        elif block.is_shell:
            for words in map(shlex.split, commands(block)):
                ours = _words_of_ours(words)
                calls.append(
                    ["-m", "federatedscope_ggeur", *ours] if ours else words[1:]
                )
    return calls


def trains(words: list[str]) -> bool:
    return words[2:3] == ["--cfg"] and "--dry-run" not in words


def has_rounds(words: list[str]) -> bool:
    return trains(words) or words[2:3] == ["study"]


PYTHON = {
    # Those with a mark are run by tests/test_readme.py.
    file: [
        b
        for b in BLOCKS
        if b.file == file
        and b.language == "python"
        and b.runs
        and not b.mark
        and file not in PAGES
    ]
    for file in FILES
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Words, exit status and output of each page's calls, and of each file's snippets
    in a row. All are forks of one process."""
    calls, places = {}, {}
    for file in PAGES:
        places[file.name] = tmp_path_factory.mktemp(file.stem)
        calls[file.name] = calls_of(file, places[file.name])
    for file, found in PYTHON.items():
        if found:
            places[file.name] = tmp_path_factory.mktemp(file.stem)
            before = BEFORE.get(file.name, "")
            code = "\n".join([before, *(b.text for b in found)])
            calls[file.name] = [["-c", code]]
    every = [
        words + FEW_ROUNDS * has_rounds(words)
        for found in calls.values()
        for words in found
    ]
    ends = iter(
        in_turn(
            every,
            tmp_path_factory.mktemp("outputs"),
            first=f"{OF_A_RUN}, sklearn.datasets; import shortened",
            path=str(ROOT / "tests"),
            seconds=2 * PATIENCE,
            places=[places[name] for name, found in calls.items() for _ in found],
        )
    )
    return {name: [(words, *next(ends)) for words in of] for name, of in calls.items()}


@pytest.mark.slow
@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_a_page_is_followed_to_the_letter(file, ran):
    """But for the number of rounds, and of a study's seeds."""
    for words, status, output in ran[file.name]:
        assert status == 0, output
        assert "AVG" in output or not trains(words)
    said = [word for words, _, _ in ran[file.name] for word in words]
    shown = {b.file_name for b in BLOCKS if b.file == file and b.runs}
    named = {name for name in shown if name.endswith(".yaml")}
    assert named <= set(said), "each file of settings is run"


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.name for file in FILES if PYTHON[file]])
def test_snippets_run_as_they_stand(name, ran):
    ((_, status, output),) = ran[name]
    assert status == 0, output


# A block of commands that an earlier one has, too, is run there.
RUNNABLE = {tuple(commands(b)): b for b in reversed(SHELL) if b.runs and commands(b)}
RUNNABLE.pop(("ggeur quickstart",))  # tests/test_readme.py runs it with all its seeds
# The same study and its report, and other rows' `compare`, are run on other pages.
RUNNABLE.pop(
    next(c for c in RUNNABLE if c[0] == "ggeur study quickstart_study" and len(c) == 3)
)


@pytest.mark.slow
@pytest.mark.parametrize("block", **named([*RUNNABLE.values()][::-1]))
def test_commands_run(block, place, request, capfd, monkeypatch):
    """As they stand, but for the number of rounds, and of a study's seeds."""
    monkeypatch.setattr(study_file, "load_study", two_seeds(load_study))
    plain = re.compile(
        rf"(?:{'|'.join(PROGRAMS)}|python -m federatedscope_ggeur) "
        "(?!enable|--engine)"
    )
    if all(plain.match(c) and " > " not in c for c in commands(block)):
        for command in commands(block):
            words = _words_of_ours(shlex.split(command))
            if words[0] in ("report", "compare"):
                parser = parser_of(find_command(words[0]))
                _make_runs(parser.parse_intermixed_args(words[1:]).folders)
            learns = words[0] in ("--cfg", "study") and len(words) > 1
            with forked_workers():
                assert main([*words, *FEW_ROUNDS * learns]) == 0, command
            assert capfd.readouterr().out
        return
    environment = _programs(place)
    if re.search("python |enable|--engine", "\n".join(commands(block))):
        environment["FEDERATEDSCOPE_HOME"] = _federatedscope(request, place)
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -e", *commands(block)])],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def _make_runs(folders):
    """Short runs of two seeds in each folder that a command names."""
    for number, folder in enumerate(map(Path, folders)):
        for seed in (0, 1) if not folder.exists() else ():
            of_folder = {"ggeur.steps": [1, 2][:number], "seed": seed}
            settings = {"federate.total_round_num": 2, **of_folder}
            place = folder / f"seed_{seed}"
            place.mkdir(parents=True)
            found = federatedscope_ggeur.run("ggeur_quickstart", overrides=settings)
            write_run(place, found)


def _programs(place: Path) -> dict[str, str]:
    """An environment whose ``python`` is this one, with the package and its program."""
    folder = place / "bin"
    folder.mkdir()
    ours = dict.fromkeys(PROGRAMS, " -m federatedscope_ggeur")
    for name, words in {"python": "", **ours}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (folder / name).chmod(0o755)
    (place / "scripts").symlink_to(ROOT / "scripts")
    (place / "benchmarks").symlink_to(ROOT / "benchmarks")
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def _federatedscope(request, place: Path) -> str:
    """A copy of FS, since one that others use must not be enabled."""
    config = Path(request.getfixturevalue("federatedscope").__file__)
    copy = place / "FederatedScope" / "federatedscope"
    shutil.copytree(
        config.parents[2], copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    return str(copy.parent)


def test_contributing_names_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tops = ("federatedscope_ggeur", "tests", ".ci")
    files = [path.as_posix() for top in tops for path in (ROOT / top).rglob("*.py")]
    named = set(re.findall(r"`([\w/.]+\.py)`", text))
    assert not [n for n in named if not any(f.endswith(f"/{n}") for f in files)]
    table = text.partition("**Round 0 in fourteen files.**")[2].partition("With `")[0]
    assert len(re.findall(r"`[\w/]+\.py`", table)) == 14
