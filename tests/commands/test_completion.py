"""What Tab offers, in a real bash."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_process import PATIENCE

ROOT = Path(__file__).parents[2]


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
    docs = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    command = re.search(r"^eval .*register.*$", docs, re.MULTILINE)[0]
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
def test_commands_and_options_are_completed(in_bash, tmp_path):
    (tmp_path / "my config.yaml").touch()
    assert in_bash("ggeur doc") == ["doctor "]
    assert in_bash("ggeur --dry") == ["--dry-run "]
    assert in_bash("ggeur --cfg my") == ["my\\ config.yaml "]
    assert in_bash("ggeur predict --fl") == ["--flag-below "]
    assert in_bash("ggeur predict --labels n") == ["names "]
