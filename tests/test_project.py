"""The project's own files agree with each other."""

import ast
from collections.abc import Iterable, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml
from own_process import python

from federatedscope_ggeur import __version__
from federatedscope_ggeur.extras import manifests
from federatedscope_ggeur.federation.exchanges import EXCHANGES, ORDER
from federatedscope_ggeur.federation.exchanges.base import all_kinds

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "federatedscope_ggeur"
#: DESIGN, section 3, from the ground up: a room may import itself and those below it.
GROUND = (
    "printable", "errors", "rng", "files", "lock", "examples", "downloads", "machine",
    "progress", "weights", "settings", "version", "extras", "crypto",
)  # fmt: skip
FLOORS = (
    *GROUND, "former_names", "geometry", "models", "methods", "data", "reporting",
    "federation", "cfg_ggeur", "predictor", "engines", "estimator",
    "commands", "cli", "__main__",
)  # fmt: skip
#: Rooms on one floor, which do not know each other.
APART = {
    "printable": set(),
    "errors": {"printable"},
    "rng": {"errors"},
    "files": {"errors"},
    "lock": {"errors", "printable"},
    "examples": {"errors"},
    "crypto": {"errors"},
    "downloads": {"errors", "printable"},
    "machine": set(),
    "progress": {"machine", "printable"},
    "weights": {"errors", "files"},
    "settings": {"errors"},
    "extras": {"settings"},
    "former_names": {"extras"},
    "data": {*GROUND},
    "reporting": {*GROUND},
}
#: Rooms that see a config.
SEE_A_CONFIG = (
    "cfg_ggeur", "predictor", "engines", "estimator", "commands",
)  # fmt: skip


@pytest.mark.parametrize("name", ["run", "tests"])
def test_the_readme_marks_its_commands(name):
    script = ROOT / ".ci" / "readme_command.py"
    assert "pip install" in python(script, name, ROOT / "README.md").stdout


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changes
    assert f"## [{__version__}]" in changes


#: Each extra, with the others that it may import.
EXTRAS = {n: (*one.needs, *one.uses, *one.beside) for n, one in manifests().items()}
#: Their commands stand on all rooms, as those of the core do.
COMMANDS = {
    command.module
    for manifest in manifests().values()
    for command in manifest.commands.values()
}


def files_of(room: str) -> list[Path]:
    """The files of a room; those of `extras` itself are not those of the extras."""
    folder = PACKAGE / room
    if room == "extras":
        return [folder / "__init__.py"]
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


@cache
def parsed(file: Path) -> ast.Module:
    """A file of the package; what it imports from its own room stands in full."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    folders = file.relative_to(PACKAGE.parent).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            start = folders[: len(folders) - node.level + 1]
            assert len(start) > 1, f"{file}: other rooms are imported in full"
            node.module = ".".join((*start, *([node.module] if node.module else ())))
            node.level = 0
    return tree


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    """All nodes of a file, its module first."""
    return list(ast.walk(parsed(file)))


def files() -> dict[Path, list[ast.AST]]:
    return {
        file.relative_to(PACKAGE): nodes_of(file)
        for file in sorted(PACKAGE.rglob("*.py"))
    }


def imports(nodes: Iterable[ast.AST]):
    """Every module that is imported, in full, with names taken from packages."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_stands_on_a_floor():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py"}
    rooms |= {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    assert rooms - {"__init__"} == set(FLOORS)


@pytest.mark.slow
@pytest.mark.parametrize("room", FLOORS)
def test_arrows_run_downward_only(room):
    allowed = APART.get(room, set(FLOORS[: FLOORS.index(room)])) | {room}
    prefix = "federatedscope_ggeur."
    for file in files_of(room):
        if module_of(file) in COMMANDS:
            continue
        for name in imports(nodes_of(file)):
            if name.startswith(prefix):
                other = name[len(prefix) :].split(".")[0]
                # The package itself holds the version and the public names.
                known = other in allowed or other not in FLOORS
                assert known, f"{file} must not import {other}"


def extra_of(parts: Sequence[str]) -> str:
    """The extra or engine that a module of the package belongs to; "" for the core."""
    is_below = parts[0] in ("extras", "engines") and len(parts) > 1
    return parts[1] if is_below and parts[1] in EXTRAS else ""


@pytest.mark.slow
def test_no_import_leads_from_the_core_into_an_extra():
    for file, nodes in files().items():
        own = extra_of(file.parts)
        allowed = {"", own, *EXTRAS.get(own, ())}
        for name in imports(nodes):
            package, *parts = name.split(".")
            if package == PACKAGE.name and parts:
                assert extra_of(parts) in allowed, f"{file} must not import {name}"


def test_what_an_extra_only_uses_is_imported_when_it_is_there():
    """Modules that import it at their top are imported in functions alone."""
    for name, manifest in manifests().items():
        tops = {
            module_of(file): set(imports(parsed(file).body))
            for room in ("extras", "engines")
            for file in (PACKAGE / room / name).rglob("*.py")
        }
        used = tuple(f"{PACKAGE.name}.extras.{other}." for other in manifest.uses)
        apart = {
            module
            for module, names in tops.items()
            if any(one.startswith(used) for one in names)
        }
        assert bool(apart) == bool(used)
        assert not apart & COMMANDS
        for module in tops.keys() - apart:
            found = {n for n in tops[module] if {n, n.rpartition(".")[0]} & apart}
            assert not found, module


def test_the_core_spells_no_setting_of_an_extra():
    own = {key.name for manifest in manifests().values() for key in manifest.keys}
    own |= {name.removeprefix("privacy.") for name in own}
    for file, nodes in files().items():
        for node in nodes if file.parts[0] != "extras" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                spelt = node.value.removeprefix("ggeur.")
                assert spelt not in own, f"{file}, line {node.lineno}: {spelt}"


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_at_run_time(tree: ast.Module):
    """As `imports`, also within functions, but not what annotations alone need."""
    for_annotations = {
        id(node)
        for choice in ast.walk(tree)
        if isinstance(choice, ast.If) and "TYPE_CHECKING" in ast.unparse(choice.test)
        for statement in choice.body
        for node in ast.walk(statement)
    }
    return imports(n for n in ast.walk(tree) if id(n) not in for_annotations)


def circle_among(modules: dict[str, ast.Module]) -> list[str]:
    """Modules that import each other in a circle; none if there is no circle."""
    graph = {}
    for module, tree in modules.items():
        names = set(imports_at_run_time(tree))
        # A name that is no module is taken from one.
        found = {n if n in modules else n.rpartition(".")[0] for n in names}
        graph[module] = (found & set(modules)) - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.slow
def test_there_is_no_circle_of_files():
    sources = {module_of(file): parsed(file) for file in PACKAGE.rglob("*.py")}
    assert not circle_among(sources)


def test_a_circle_within_functions_is_found():
    one = ast.parse("def f():\n    from p.two import g")
    two = ast.parse("import p.three")
    three = ast.parse("from p import one")
    assert set(circle_among({"p.one": one, "p.two": two, "p.three": three})) == {
        "p.one", "p.two", "p.three",
    }  # fmt: skip


@pytest.mark.slow
def test_only_the_engine_in_federatedscope_imports_it():
    for file, nodes in files().items():
        for name in imports(nodes):
            if name.split(".")[0] == "federatedscope":
                assert file.parts[:2] == ("engines", "fs"), f"{file} imports {name}"


def test_what_the_package_logs_is_made_printable():
    """By its loggers, since handlers of others get the records too."""
    copied = Path("engines", "fs", "loader.py")  # it works without the package
    for file, (module, *_) in files().items():
        if file == copied:
            continue
        for node in module.body:
            if (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "logger"
            ):
                made = ast.unparse(node.value)
                assert made.startswith("get_logger("), f"{file}: {made}"


@pytest.mark.slow
def test_errors_of_several_lines_are_given_lines():
    """A line end in any other text is escaped when the error is shown."""
    for file, nodes in files().items():
        for node in nodes:
            if not (isinstance(node, ast.Call) and node.args):
                continue
            made, first = ast.unparse(node.func), node.args[0]
            if not made.endswith("Error") or ast.unparse(first).startswith("Lines("):
                continue
            texts = [n.value for n in ast.walk(first) if isinstance(n, ast.Constant)]
            lines = [text for text in texts if isinstance(text, str) and "\n" in text]
            assert not lines, f"{file}, line {node.lineno}: give {made} Lines"


@pytest.mark.parametrize("room", [r for r in FLOORS if r not in SEE_A_CONFIG])
def test_who_sees_a_config(room):
    """No room below takes one: nothing is called cfg, and nothing imports yacs."""
    for file in files_of(room):
        nodes = nodes_of(file)
        assert not [name for name in imports(nodes) if name.startswith("yacs")], file
        for node in nodes:
            named = (
                getattr(node, "arg", None) if isinstance(node, ast.arg) else None,
                node.id if isinstance(node, ast.Name) else None,
            )
            assert not {"cfg", "ggeur"} & set(named), f"{file}, line {node.lineno}"


class TestExchanges:
    """Each question has one room; a room imports those before it and no later one."""

    ROOMS = Path("federation/exchanges")

    @staticmethod
    def imported(nodes):
        """The rooms of exchanges that a module imports."""
        start = "federatedscope_ggeur.federation.exchanges."
        names = [
            node.module
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module
        ]
        found = {n[len(start) :].split(".")[0] for n in names if n.startswith(start)}
        return found - {"base"}

    def test_there_is_a_room_for_each(self):
        assert set(ORDER) <= set(EXCHANGES)
        rooms = {path.stem for path in (PACKAGE / self.ROOMS).iterdir()}
        assert rooms - {"__pycache__", "__init__", "base"} == set(ORDER)

    @pytest.mark.parametrize("room", ORDER)
    def test_a_room_imports_no_later_one(self, room):
        allowed = ORDER[: ORDER.index(room) + 1]
        for file, nodes in files().items():
            if file.parts[:3] == (*self.ROOMS.parts, room):
                assert self.imported(nodes) <= set(allowed), file

    def test_what_all_share_imports_no_exchange(self):
        shared = [
            (file, nodes)
            for file, nodes in files().items()
            if file.parts[0] == "federation"
            and file.parts[1] not in ("exchanges", "course", "__init__.py")
        ]
        assert len(shared) > 10
        for file, nodes in shared:
            assert not self.imported(nodes), file

    def test_requests_are_spelt_in_their_rooms(self):
        """Nobody else compares with the name of a request, or makes a kind."""
        names = {text for k in all_kinds() for text in (k.name, k.message)}
        names |= {kind.answer_message for kind in all_kinds() if kind.answer_message}
        for file, nodes in files().items():
            is_room = file.parts[:2] == self.ROOMS.parts
            if file.parts[0] not in ("federation", "engines") or is_room:
                continue
            for node in nodes:
                is_made = (
                    isinstance(node, ast.Call)
                    and getattr(node.func, "id", "") == "RequestKind"
                )
                assert not is_made, f"{file}, line {node.lineno}"
                if isinstance(node, ast.Compare):
                    parts = ast.walk(node)
                    spelt = {p.value for p in parts if isinstance(p, ast.Constant)}
                    texts = {value for value in spelt if isinstance(value, str)}
                    assert not names & texts, f"{file}, line {node.lineno}"

    @pytest.mark.slow
    def test_answers_are_decoded_in_one_place(self):
        answers = {kind.answer.__name__ for kind in all_kinds() if kind.answer}
        for file, nodes in files().items():
            for node in nodes:
                if isinstance(node, ast.Attribute) and node.attr == "from_bytes":
                    whose = getattr(node.value, "id", getattr(node.value, "attr", ""))
                    assert whose not in answers, f"{file}, line {node.lineno}"
                    asking = Path("federation/course/asking.py")
                    assert whose != "answer" or file == asking


COUNTED = """\
import sys
from federatedscope_ggeur.cli import main
words = ["--cfg", "ggeur_quickstart.yaml", "outdir", sys.argv[1]]
main([*words, "federate.total_round_num", "1"])
print(sum(name.split(".")[0] == "federatedscope_ggeur" for name in sys.modules))
"""


@pytest.mark.slow
def test_a_first_run_loads_few_modules(tmp_path):
    done = python("-c", COUNTED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) <= 220
