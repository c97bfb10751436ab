"""What ``ggeur doctor`` says of FederatedScope."""

from __future__ import annotations

import shlex
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError

from . import install
from .install import State
from .protobuf import outlook


def report() -> list[str]:
    """Lines about FederatedScope: where it is, and whether it loads the plugin."""
    try:
        package = install.find()
    except ConfigError as error:
        return [f"{error}", "        the embedded engine needs none of it"]
    if install.importable_package() is None:
        how = f"in the checkout that {install.HOME_VARIABLE} names, not importable"
    else:
        how = "importable"
    lines = [f"FederatedScope: {package} ({how}); the embedded engine needs none of it"]
    try:
        lines += [*_plugin(package), *_messages(package)]
    except ConfigError as error:
        lines.append(f"        {error}")
    missing = install.missing_packages()
    if missing:
        lines += [
            f"MISSING for FederatedScope: {', '.join(missing)}",
            f"        pip install {' '.join(missing)}; or all: {install.EXTRA}",
        ]
    return lines


def _plugin(package: Path) -> list[str]:
    state = install.state(package)
    lines = [f"        plugin: {state.value}"]
    folder = shlex.quote(str(package))
    if state is State.ENABLED:
        lines.append(f"        run: {install.run_command(package)}")
    elif state is State.NOT_IMPORTABLE:
        lines.append(f"        pip install it, or run: {install.run_command(package)}")
    elif state is State.FOREIGN:
        lines.append(f"        move {install.plugin_file(package)} away, then:")
    if state in (State.NOT_ENABLED, State.OTHER_VERSION, State.FOREIGN):
        lines += [
            f"        ggeur enable {folder}",
            "        or, without enabling it: ggeur --engine "
            "federatedscope --cfg FILE.yaml",
        ]
    return lines


def _messages(package: Path) -> list[str]:
    try:
        return [f"        {outlook(package)}"]
    except ImportError as error:
        return [f"        protobuf compatibility: unknown ({error})"]
