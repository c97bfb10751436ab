"""The extras: folders with all of themselves, each of which can be deleted.

An extra `extras/<name>`, or an engine `engines/<name>`, has a file ``manifest.py``,
which defines `MANIFEST`. This file and its ``__init__.py`` import no torch. So the
core can list and check commands and settings of an extra without importing its parts.
The core neither imports nor names an extra.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from federatedscope_ggeur.settings import Key, Registry

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


def commands_in(module: str, table: str, group: str = AFTER) -> dict[str, Command]:
    """The commands of a module; with "", each has a module of its own name.

    The `table` has the form of `entries`: how people call a command, such as
    ``configs [FOLDER]``, and what it does.
    """
    commands = {}
    for called, does in entries(table):
        name, _, takes = called.partition(" ")
        commands[name] = Command(module or name, takes, does, group)
    return commands


def entries(table: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before and behind the first colon of each entry of a table.

    Each entry begins a line. Its further lines are indented. A space follows the colon.

    Raises
    ------
    ValueError
        An entry has no such colon.
    """
    for entry in re.split(r"\n(?! )", table.strip()):
        head, colon, does = " ".join(entry.split()).partition(": ")
        if not colon:
            raise ValueError(f"the entry {entry!r} of a table has no ': '")
        yield head, does


class Preparation(NamedTuple):
    """What an extra makes of the classes' names before a run starts.

    Attributes
    ----------
    module : str
        It has two functions. ``prepared(cfg, names, dim, identity, encoder)`` returns
        `federation.prepared.Prepared`. ``embedded(cfg, names, encoding, identity)``
        returns lines of ``ggeur embed``.
    is_due : callable (callable from name to setting) -> bool
        Whether a run with these settings needs it. Settings of the extra that are
        `shared` are agreed on in such runs alone.
    what, differs : str
        A name for errors, and the error if sides have prepared other things.
    """

    module: str
    is_due: Callable[[Callable[[str], Any]], bool]
    what: str
    differs: str


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
    uses : tuple of str
        Other extras that this one imports if a run has them. It works without them.
    beside : mapping from str to str
        Modules that register parts only where another extra is there, by its name.
    engines : mapping from str to str
        The values of ``--engine``, each with a module. Its function ``launch`` returns
        the exit status. It takes the path of a config, the settings behind it, and the
        path of ``--client_cfg`` or None.
    runs_code : mapping from str to str
        The engines whose server can do more than ask, each with a warning for runs that
        trust their clients to add masks or noise.
    registers : mapping from str to (mapping from str to str)
        The names of parts by what chooses one of them: a setting such as
        ``"augmentation"``, or ``"models"`` for the settings that choose a model in
        place of a head. Each name has the module that registers it. A run that chooses
        one of them loads the extra. The keys of their settings stand in `keys`.
    public : mapping from str to str
        Further names of the package's public interface, each with its module.
    formerly : mapping from str to str
        Documented modules that moved here: former names below the package, each with
        the module.
    registries : tuple of Registry
        Further registries of parts with settings ``ggeur.<name>.*``.
    prepares : Preparation, optional
    doctor : str
        The module whose function ``report`` returns further lines of ``ggeur doctor``.
    only_totals : str
        The setting with which the server sees only totals over all clients.
    """

    commands: Mapping[str, Command] = field(default_factory=dict)
    keys: tuple[Key, ...] = ()
    parts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    runs_code: Mapping[str, str] = field(default_factory=dict)
    registers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    public: Mapping[str, str] = field(default_factory=dict)
    formerly: Mapping[str, str] = field(default_factory=dict)
    registries: tuple[Registry, ...] = ()
    prepares: Preparation | None = None
    doctor: str = ""
    only_totals: str = ""

    @property
    def own_names(self) -> set[str]:
        """The names of all its settings."""
        return {key.name for key in self.keys}

    def load(self) -> None:
        """Import the modules that register the extra's parts."""
        beside = (m for name, m in self.beside.items() if name in manifests())
        for module in (*self.parts, *beside):
            import_module(module)


def load_extras(chosen: Mapping[str, object]) -> None:
    """Load each extra of which `chosen` has a part, or a setting not at its default.

    Parameters
    ----------
    chosen : mapping from str to value
        Settings by their full names. Those that lack are at their defaults.
    """
    for manifest in manifests().values():
        is_set = any(
            key.read(chosen.get(key.name, key.default)) != key.default
            for key in manifest.keys
        )
        parts = manifest.registers.items()
        if is_set or any(chosen.get(setting) in names for setting, names in parts):
            manifest.load()


@cache
def manifests() -> Mapping[str, Manifest]:
    """The manifests of all engines and extras, in order of their names."""
    package = Path(__file__).parents[1]
    by_name = {}
    for room in ("engines", "extras"):
        for file in sorted((package / room).glob("*/manifest.py")):
            name = file.parent.name
            module = import_module(f"{package.name}.{room}.{name}.manifest")
            by_name[name] = module.MANIFEST
    return MappingProxyType(by_name)


def settings_for_totals() -> list[str]:
    """The settings with which the server sees only totals over all clients."""
    return [one.only_totals for one in manifests().values() if one.only_totals]


def parts_of(chosen_by: str) -> dict[str, str]:
    """What extras register under `chosen_by`, each name with its module."""
    parts = (one.registers.get(chosen_by, {}) for one in manifests().values())
    return dict(chain.from_iterable(one.items() for one in parts))


def all_of(part: str) -> dict[str, Any]:
    """What all manifests have in one of their mappings, such as ``"engines"``."""
    parts = (getattr(manifest, part) for manifest in manifests().values())
    return dict(chain.from_iterable(one.items() for one in parts))
