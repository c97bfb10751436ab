"""The extras: folders with all of themselves, each of which can be deleted.

An extra `extras/<name>` has a file ``manifest.py``, which defines `MANIFEST`. This file
and the extra's ``__init__.py`` import no torch. So the core can list and check the
extra's commands and settings without importing its parts. The core neither imports nor
names an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from federatedscope_ggeur.settings import Key

#: The group of commands that read the folder of a run.
AFTER = "after a run"


class Command(NamedTuple):
    """The module of a command, and its texts in the help.

    Attributes
    ----------
    module : str
        The module of the command, in full for a command of an extra, and otherwise a
        file in `commands`. Its function has the command's name, with _ for -. The
        function takes the words after the name and returns the exit status: 0, or 130
        after an interruption, unless its docstring says more. It raises a `GGEURError`
        for problems that a user can fix.
    takes : str
        The words after the name, as shown in the help.
    does : str
        What the command does, in one line.
    group : str
        One of `commands.GROUPS`.
    """

    module: str
    takes: str
    does: str
    group: str = AFTER


@dataclass(frozen=True)
class Manifest:
    """What the core must know of an extra before it imports the extra's parts.

    Attributes
    ----------
    commands : mapping from str to Command
    keys : tuple of Key
        The settings of a run, by their full names. A setting that is not at its default
        loads the extra's parts.
    parts : tuple of str
        The modules that register the parts.
    needs : tuple of str
        The other extras that this one imports.
    """

    commands: Mapping[str, Command] = field(default_factory=dict)
    keys: tuple[Key, ...] = ()
    parts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def load(self) -> None:
        """Import the modules that register the extra's parts."""
        for module in self.parts:
            import_module(module)


def load_extras(chosen: Mapping[str, object]) -> None:
    """Load each extra of which `chosen` has a setting that is not at its default.

    Parameters
    ----------
    chosen : mapping from str to value
        Settings by their full names. Those that lack are at their defaults.
    """
    for manifest in manifests().values():
        if any(
            chosen.get(key.name, key.default) != key.default for key in manifest.keys
        ):
            manifest.load()


@cache
def manifests() -> Mapping[str, Manifest]:
    """The manifests of all extras, in order of their names."""
    folders = sorted(file.parent.name for file in Path(__file__).parent.glob(_FILES))
    found = {name: import_module(f"{__name__}.{name}.manifest") for name in folders}
    return MappingProxyType({name: one.MANIFEST for name, one in found.items()})


_FILES = "*/manifest.py"
