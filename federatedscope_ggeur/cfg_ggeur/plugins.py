"""Load plugins: modules that a config names, and modules of installed packages.

Plugins are loaded before a config is built, because they bring keys. Only the user can
name a plugin: a message, a results file or a run folder never loads one.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, PluginError, UntrustedError
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import ENTRY_POINTS

from .keys import PLUGINS, all_keys
from .yaml_file import literal, read_yaml

_KEY = f"ggeur.{PLUGINS.name}"
#: The names of the modules that this module has loaded.
_loaded: set[str] = set()


def load_plugins(
    modules: Sequence[str] = (), *folders: Path | None, asked_by: str = _KEY
) -> None:
    """Import the plugins of installed packages, and `modules`.

    Parameters
    ----------
    modules : sequence of str
        The names in ``ggeur.plugins``.
    *folders : Path or None
        Folders to search for the modules first, in order, such as the YAML file's
        folder.
    asked_by : str
        The key or option that names the modules, for messages.

    Raises
    ------
    ConfigError
        A module is not found or fails on import. Or it registers a name that is taken.
        Or another module with the same name is loaded already.
    """
    for name, entry_point in _installed():
        _load(name, [], f"the entry point '{entry_point}' of {ENTRY_POINTS}")
    for name in modules:
        _load(name, [folder for folder in folders if folder is not None], asked_by)


def plugins_in(given: Iterable[tuple[str, object]]) -> list[str]:
    """The modules that ``ggeur.plugins`` names in `given`, which are pairs of key and
    value.

    If the key occurs twice, the last value counts.

    Raises
    ------
    ConfigError
        The value is no list of names.
    """
    chosen = literal(dict(given).get(_KEY, PLUGINS.default))
    if problem := PLUGINS.rule(chosen):
        raise ConfigError(f"{_KEY}: {problem}")
    return list(chosen)


def check_loaded(given: Iterable[tuple[str, object]]) -> None:
    """Check that every plugin which the settings `given` name is loaded.

    Use this for settings that the user did not write, such as those of a results file.

    Raises
    ------
    UntrustedError
        A plugin is not loaded; the message names it.
    """
    missing = [name for name in plugins_in(given) if name not in sys.modules]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        words = " ".join(f"--plugins {name}" for name in missing)
        said = [
            f"{_KEY}: the settings name {named}. A run's folder or a dict cannot make "
            "this program import a module.",
            f"If you know what the module does, name it yourself: {words} (in Python: "
            "import it first).",
        ]
        raise UntrustedError(Lines(said))


def load_plugins_of(arguments: Sequence[str]) -> None:
    """Load the plugins that a command line of FederatedScope's main.py names.

    No plugin of the command line is loaded if FederatedScope will refuse it or its
    file.
    """
    try:
        path, given = _parsed(arguments)
        named = plugins_in(given)
    except ConfigError:
        path, named = None, []
    load_plugins(named, path and path.parent)


def settings_of(arguments: Sequence[str]) -> list[tuple[str, object]]:
    """Keys (with dots) and values from a command line of FS's main.py and from its
    file.

    Raises
    ------
    ConfigError
        The command line is wrong, or the file cannot be read.
    """
    return _parsed(arguments)[1]


def asks_for_the_plugin(given: Iterable[tuple[str, object]]) -> bool:
    """Whether the settings `given` ask FS for a run with this plugin.

    Wrong settings count, too.
    """
    values = dict(given)
    return (
        literal(values.get("ggeur.use")) is True
        or str(values.get("federate.method")).lower() == "ggeur"
        or str(values.get("data.type")).lower().endswith("@ggeur")
    )


def _parsed(arguments: Sequence[str]) -> tuple[Path | None, list[tuple[str, object]]]:
    parser = _Parser(add_help=False)
    parser.add_argument("--cfg")
    parser.add_argument("--client_cfg")
    parser.add_argument("--help", nargs="?")
    parser.add_argument("settings", nargs=argparse.REMAINDER)
    options = parser.parse_args(list(arguments))
    words = options.settings
    given = list(zip(words[::2], words[1::2]))
    if not options.cfg:
        return None, given
    return Path(options.cfg), [*read_yaml(options.cfg), *given]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ConfigError(message)


@cache
def _installed() -> list[tuple[str, str]]:
    """The module and the name of each installed entry point, sorted by name."""
    every = entry_points()
    # Python 3.9 gives a dict, in which some entry points appear twice.
    select = getattr(every, "select", None)
    ours = select(group=ENTRY_POINTS) if select else every.get(ENTRY_POINTS, ())
    points = {(point.name, point.value.partition(":")[0].strip()) for point in ours}
    return [(module, name) for name, module in sorted(points)]


def told_of(error: BaseException) -> PluginError | None:
    """An error with a message if a line of a plugin raised `error`; None otherwise."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for name in _loaded:
            module = sys.modules.get(name.partition(".")[0])
            if _is_in(frame.filename, getattr(module, "__file__", None)):
                what = f"{type(error).__name__}: {error}"
                said = [
                    f"{frame.filename}, line {frame.lineno}, in {frame.name}:",
                    f"    {frame.line}",
                    f"{what}. This line belongs to the plugin '{name}'; fix it there. "
                    "If the run has a folder, its log.txt has the whole traceback.",
                ]
                return PluginError(Lines(said))
    return None


def _is_in(file: str, module: str | None) -> bool:
    """Whether `file` is the file `module`, or belongs to the package `module`."""
    own = Path(module or "")
    if own.name == "__init__.py":
        return own.parent in Path(file).parents
    return Path(file) == own


def _load(name: str, folders: Sequence[Path], asked_by: str) -> None:
    _loaded.add(name)
    if not folders and name in sys.modules:
        return  # a loaded config names a module that was beside its file
    with _first(folders):
        spec = _find(name.partition(".")[0])
        if spec is None:
            raise ConfigError(_not_found(name, folders, asked_by))
        _check_loaded(name, spec, asked_by)
        try:
            importlib.import_module(name)
        # SystemExit: a script that ends the program when it is imported.
        except (Exception, SystemExit) as error:
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing is not None and f"{name}.".startswith(f"{missing}."):
                raise ConfigError(_not_found(name, folders, asked_by)) from error
            raise ConfigError(_failed(name, spec, asked_by, error)) from error
    try:
        all_keys()
    except ConfigError as error:
        raise ConfigError(f"{asked_by}: the module '{name}': {error}") from error


@contextmanager
def _first(folders: Sequence[Path]) -> Iterator[None]:
    """A context in which Python searches `folders` for modules first."""
    places = [str(folder.resolve()) for folder in folders]
    importlib.invalidate_caches()  # a file may be newer than Python's list of them
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            sys.path.remove(place)


def _find(name: str) -> ModuleSpec | None:
    """Find the module `name` as an import would, if no module were loaded yet."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)  # very old ones lack it
        spec = find and find(name, None)
        if spec is not None:
            return spec
    return None


def _check_loaded(name: str, spec: ModuleSpec, asked_by: str) -> None:
    loaded = getattr(sys.modules.get(spec.name), "__file__", None)
    if loaded and spec.origin and Path(loaded).resolve() != Path(spec.origin).resolve():
        raise ConfigError(
            f"{asked_by}: the module '{name}' is '{spec.origin}', but '{loaded}' is "
            "loaded under that name already; rename one of them"
        )


def _not_found(name: str, folders: Sequence[Path], asked_by: str) -> str:
    beside = "".join(f"in '{folder.resolve()}' or " for folder in folders)
    return (
        f"{asked_by}: there is no module '{name}' {beside}where Python finds modules "
        "(sys.path); check the name, put the module there, or install it"
    )


def _failed(name: str, spec: ModuleSpec, asked_by: str, error: BaseException) -> str:
    """The message for a failed import, with the last line of the plugin that ran."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_in(frame.filename, spec.origin)]
    lines = [f"{frame.filename}, line {frame.lineno}" for frame in own]
    if isinstance(error, SyntaxError):
        lines.append(f"{error.filename}, line {error.lineno}")
    where = lines[-1] if lines else spec.origin or ""
    return (
        f"{asked_by}: the module '{name}' cannot be loaded: {where}: "
        f"{type(error).__name__}: {error}; fix the module, or do not name it"
    )
