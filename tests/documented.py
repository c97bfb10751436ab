"""The fenced blocks of the documentation, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FILES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
PROGRAMS = ("ggeur", "federatedscope-ggeur")
_FENCE = re.compile(
    r"(?:^<!-- ([\w ]+): ([^\n]*?) -->\n+)?^```(\w*)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: What .ci/run does before or beside the tests, and what must not be done here.
SET_UP = (
    "python3 -m venv", "python -m venv", ". .venv/bin/activate", "pip install",
    "python -m pip install", "python -m pytest", "ruff", "mypy", "mkdocs",
    "git clone", "export FEDERATEDSCOPE_HOME",
)  # fmt: skip


class Block(NamedTuple):
    """A fenced block; `mark` and `reason` are those of the comment before it."""

    file: Path
    line: int
    mark: str
    reason: str
    language: str
    text: str

    @property
    def name(self) -> str:
        """For a person: the file and the line."""
        return f"{self.file.name}:{self.line}"

    @property
    def file_name(self) -> str:
        """The file that it is, by its first line "# NAME"; "" of any other."""
        found = re.match(r"# ([\w-]+\.(?:py|yaml))\n", self.text)
        return found[1] if found else ""

    @property
    def is_shell(self) -> bool:
        """Whether it holds commands."""
        return self.language in ("bash", "sh", "zsh") or (
            not self.language
            and self.text.startswith((*(f"{name} " for name in PROGRAMS), "pip "))
        )

    @property
    def runs(self) -> bool:
        """Whether it can be run here."""
        return self.mark != "not run"


def blocks() -> Iterator[Block]:
    """Every block of every file, in order."""
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start(3)) + 1
            mark, reason, language, content = match.groups()
            yield Block(file, line, mark or "", reason or "", language, content)


def commands(block: Block) -> list[str]:
    """The commands of a shell's block, without comments and set-up."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    lines = (" ".join(_words(line)) for line in joined.splitlines())
    parts = [part.strip() for line in lines for part in line.split(" && ")]
    return [part for part in parts if part and not part.startswith(SET_UP)]


def _words(line: str) -> list[str]:
    """The words of a line as they stand, quotes included, less a comment."""
    lexer = shlex.shlex(line, posix=False, punctuation_chars=False)
    lexer.whitespace_split = True
    return list(lexer)
