"""What Tab offers, and that a real bash gets it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from completed import offered
from own_process import PATIENCE

from federatedscope_ggeur.commands import COMMANDS
from federatedscope_ggeur.commands.completion import completions
from federatedscope_ggeur.examples import example_configs
from federatedscope_ggeur.extras import all_of
from federatedscope_ggeur.methods import METHODS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_names_are_those_of_the_parsers_and_the_settings():
    script = ROOT / ".ci" / "completion_names.py"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import completion_names as c; print(c.names(), end='')",
        ],
        env={**os.environ, "PYTHONPATH": f"{script.parent}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    file = ROOT / "federatedscope_ggeur" / "commands" / "completion.json"
    written = file.read_text(encoding="utf-8")
    assert written == done.stdout, "run python .ci/completion_names.py"


def test_the_first_word_is_a_command_or_an_option_of_a_run():
    assert {*COMMANDS, "--cfg", "--quiet", "--dry-run"} <= offered("")
    assert offered("--c") == {"--cfg", "--client_cfg"}
    assert "predict" in offered("pr")


@pytest.mark.parametrize("name", ["embed", "keys"])
def test_a_command_has_its_own_options(name):
    assert "--cfg" in offered(f"{name} --")
    assert "--engine" not in offered(f"{name} --")
    assert "ggeur_pacs.yaml" in offered(f"{name} --cfg ggeur_p")
    assert offered(f"{name} --cfg x see") == {"seed"}


def test_examples_and_files_stand_behind_cfg():
    found, places = completions(["--cfg"], "")
    assert set(found) == {file.name for file in example_configs()}
    assert places


def test_options_have_their_choices():
    assert offered("--engine ") == {"embedded", *all_of("engines")}
    assert offered("predict --log-level w") == {"warning"}
    assert completions(["predict", "--top"], "") == ({}, False)


def test_keys_come_a_section_at_a_time():
    assert {"seed", "ggeur.", "federate."} <= offered("--cfg x ")
    assert not [key for key in offered("--cfg x ") if key.startswith("ggeur.s")]
    assert offered("--cfg x ggeur.scaf") == {"ggeur.scaffold.server_lr"}
    below = offered("--cfg x ggeur.moon.")
    assert below == {"ggeur.moon.mu", "ggeur.moon.temperature"}
    assert offered("--cfg x gge") == offered("--cfg x ggeur.")


def test_values_follow_their_key():
    assert offered("--cfg x ggeur.base_method ") == {*METHODS}
    assert offered("--cfg x use_gpu ") == {"False", "True"}
    assert "embeddings@ggeur" in offered("--cfg x data.type ")
    assert offered("--cfg x seed ") == set()
    assert offered("--cfg x no.such.key ") == set()


def test_a_value_that_looks_like_an_option_is_a_value():
    assert offered("--cfg x expname --quiet see") == {"seed"}
    assert offered("--cfg x seed 1 --qui") == {"--quiet"}


def test_files_stand_where_a_command_takes_some():
    assert completions(["predict", "--run"], "") == ({}, True)
    assert completions(["predict", "--run", "x", "a.jpg"], "b") == ({}, True)
    assert completions(["configs"], "")[1]
    assert not completions(["configs", "here"], "")[1]
    assert not completions(["doctor"], "")[1]


ASK = """\
set -e
{register}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; COMPREPLY=()
_python_argcomplete ggeur
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def in_bash(tmp_path):
    """The words that a real bash gets for a line, by the documented command."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "bin" / "ggeur"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from federatedscope_ggeur.cli import main\n"
        "sys.exit(main())\n"
    )
    program.chmod(0o755)
    docs = (ROOT / "docs" / "completion.md").read_text(encoding="utf-8")
    command = docs.split("```bash\n")[1].split("\n```")[0]
    # The command of argcomplete, wherever this Python has it.
    made = subprocess.run(
        [sys.executable, "-c", REGISTER, *shlex.split(command)[1].split()[1:]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout  # fmt: skip

    def ask(line: str) -> list[str]:
        done = subprocess.run(
            [bash, "-c", ASK.format(register=made, line=shlex.quote(line))],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        return done.stdout.splitlines()

    return ask


REGISTER = """\
import sys
from argcomplete import shellcode
print(shellcode([word.rstrip(')') for word in sys.argv[1:]], shell="bash"))
"""


@pytest.mark.slow
def test_a_real_bash_completes(in_bash, tmp_path):
    (tmp_path / "my config.yaml").touch()
    program = "ggeur"
    assert in_bash(f"{program} doc") == ["doctor "]
    assert in_bash(f"{program} --cfg ggeur_quick") == ["ggeur_quickstart.yaml "]
    assert in_bash(f"{program} --cfg my") == ["my\\ config.yaml "]
    assert in_bash(f"{program} --cfg x ggeur.base_method sca") == ["scaffold "]
    # "@" ends a word for bash.
    assert in_bash(f"{program} --cfg x data.type office_caltech@") == ["ggeur "]
    assert in_bash(f"{program} --cfg x seed 3 --qu") == ["--quiet "]
