"""Finds FederatedScope (FS), and makes it load the plugin, or not any more.

FS imports every file of ``federatedscope/contrib/configs`` when it builds its config.
`enable` writes one file there, and `disable` removes it. No other file of FS changes.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, refusing
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.version import __version__

PLUGIN_FILE = "federatedscope_ggeur_plugin.py"
HOME_VARIABLE = "FEDERATEDSCOPE_HOME"
EXTRA = "pip install 'federatedscope-ggeur[federatedscope]'"
HOW_TO_GET_IT = (
    "To get FederatedScope: (1) git clone https://github.com/alibaba/FederatedScope "
    f"and set {HOME_VARIABLE} to that folder; or (2) install the checkout: "
    "pip install --no-deps -e FederatedScope; or (3) name the checkout: "
    "ggeur enable FOLDER; or (4) without a checkout: pip install --no-deps "
    "git+https://github.com/alibaba/FederatedScope@480b67de851df2fa02b7cc2189f1803d947998d7"
)
#: The packages that FS needs: name on PyPI, module.
FS_PACKAGES = (
    ("torch", "torch"),
    ("numpy", "numpy"),
    ("scipy", "scipy"),
    ("scikit-learn", "sklearn"),
    ("pandas", "pandas"),
    ("pyyaml", "yaml"),
    ("grpcio", "grpc"),
    ("protobuf", "google.protobuf"),
    ("pympler", "pympler"),
)
_OF_FS = (
    "main.py",
    "register.py",
    "core/configs/config.py",
    "contrib/configs/__init__.py",
)
_MARK = "# Written by `ggeur enable`"
_CONTENT = f"""\
{_MARK}, version {__version__};
# `ggeur disable` removes it.
{Path(__file__).with_name("loader.py").read_text(encoding="utf-8")}"""


def find(folder: str | os.PathLike | None = None) -> Path:
    """Find FS's package folder, which holds ``main.py``.

    Parameters
    ----------
    folder : path, optional
        A checkout of FS, or the package folder in it. By default the ``federatedscope``
        that can be imported, or else the folder that FEDERATEDSCOPE_HOME names.

    Raises
    ------
    ConfigError
        There is no FS in this place.
    """
    if folder is not None:
        return _package_in(folder, "the folder")
    importable = importable_package()
    if importable is not None:
        return importable
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return _package_in(home, f"{HOME_VARIABLE}: the folder")
    raise ConfigError(
        "FederatedScope was not found: it cannot be imported, and the environment "
        f"variable {HOME_VARIABLE} is not set. {HOW_TO_GET_IT}"
    )


def importable_package() -> Path | None:
    """The folder of the importable package ``federatedscope``; None without one."""
    try:
        spec = find_spec("federatedscope")
    except (ImportError, ValueError):
        return None
    folders = spec.submodule_search_locations if spec is not None else None
    package = Path(next(iter(folders or ()), "")).resolve()
    return package if _is_package(package) else None


def missing_packages() -> list[str]:
    """The PyPI names of packages that FS needs but that are not installed."""
    return [package for package, module in FS_PACKAGES if not _is_installed(module)]


def enable(folder: str | os.PathLike | None = None) -> str:
    """Make the FS in `folder` (see `find`) load the plugin; returns a report.

    Raises
    ------
    ConfigError
        There is no FS, the folder is not writable, or another file has the name of the
        plugin's file. Nothing was changed.
    """
    package = find(folder)
    file = plugin_file(package)
    content = _content(file)
    if content == _CONTENT:
        return f"already enabled: {file}"
    if content is not None and _MARK not in content:
        raise ConfigError(
            f"'{file}' was not written by this program; move it away and enable again"
        )
    try:
        write_atomically(file, _CONTENT)
    except ConfigError as error:
        raise ConfigError(
            f"{error}. Run the command as a user who may write there, or use "
            "FederatedScope without changing it: ggeur --engine federatedscope "
            "--cfg FILE"
        ) from error
    return f"{'enabled' if content is None else 'updated'}: {file}"


def disable(folder: str | os.PathLike | None = None) -> str:
    """Undo `enable` and remove the compiled file, too; returns a report.

    Raises
    ------
    ConfigError
        There is no FS, the file is not the plugin's, or it cannot be removed.
    """
    file = plugin_file(find(folder))
    content = _content(file)
    if content is None:
        return f"not enabled: there is no {file}"
    if _MARK not in content:
        raise ConfigError(
            f"'{file}' was not written by this program, so it was not removed"
        )
    with refusing(
        f"cannot remove '{file}' (disable again as a user who may remove it)"
    ):
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()
        file.unlink()
    return f"disabled: {file} is removed"


def is_enabled(package: Path) -> bool:
    """Whether the FS in `package` loads this version of the plugin.

    Raises
    ------
    ConfigError
        Its files cannot be read.
    """
    return _content(plugin_file(package)) == _CONTENT


def run_command(folder: str | os.PathLike | None = None) -> str:
    """The command that runs the FS in `folder` from any working directory.

    FS's main.py finds its own package only if it is installed or on PYTHONPATH, so the
    command sets PYTHONPATH if necessary.
    """
    package = find(folder)
    command = f"python {shlex.quote(str(package / 'main.py'))} --cfg FILE.yaml"
    if importable_package() == package:
        return command
    paths = filter(None, [str(package.parent), os.environ.get("PYTHONPATH")])
    return f"PYTHONPATH={shlex.quote(os.pathsep.join(paths))} {command}"


def plugin_file(package: Path) -> Path:
    """The path of the file that `enable` writes."""
    return package / "contrib" / "configs" / PLUGIN_FILE


def _package_in(folder: str | os.PathLike, what: str) -> Path:
    for package in (Path(folder, "federatedscope"), Path(folder)):
        if _is_package(package):
            return package.resolve()
    raise ConfigError(
        f"{what} '{folder}' is no FederatedScope, since some of {', '.join(_OF_FS)} "
        f"are missing. {HOW_TO_GET_IT}"
    )


def _is_package(folder: Path) -> bool:
    return all(os.path.isfile(folder / name) for name in _OF_FS)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _content(file: Path) -> str | None:
    with refusing(f"cannot read '{file}'"), suppress(FileNotFoundError):
        return file.read_text(encoding="utf-8", errors="replace")
    return None


def report() -> list[str]:
    """Lines about FederatedScope: where it is, and whether it loads the plugin."""
    try:
        package = find()
        loads_us = is_enabled(package)
    except ConfigError as error:
        return [f"{error}", "        the embedded engine needs none of it"]
    if loads_us:
        state = f"enabled\n        run: {run_command(package)}"
    else:
        state = (
            "not enabled, or by another version\n"
            f"        ggeur enable {shlex.quote(str(package))}\n"
            "        or, without enabling it: ggeur --engine federatedscope --cfg "
            "FILE.yaml"
        )
    lines = [
        f"FederatedScope: {package}; the embedded engine needs none of it",
        f"        plugin: {state}",
    ]
    if missing := missing_packages():
        named, words = ", ".join(missing), " ".join(missing)
        lines.append(
            f"MISSING for FederatedScope: {named}\n        pip install {words}; "
            f"or all: {EXTRA}"
        )
    return lines
