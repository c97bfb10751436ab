"""What ``ggeur doctor`` says of FederatedScope."""

from __future__ import annotations

import shlex

from federatedscope_ggeur.errors import ConfigError

from . import install


def report() -> list[str]:
    """Lines about FederatedScope: where it is, and whether it loads the plugin."""
    try:
        package = install.find()
        is_enabled = install.is_enabled(package)
    except ConfigError as error:
        return [f"{error}", "        the embedded engine needs none of it"]
    lines = [f"FederatedScope: {package}; the embedded engine needs none of it"]
    if is_enabled:
        lines += [
            "        plugin: enabled",
            f"        run: {install.run_command(package)}",
        ]
    else:
        lines += [
            "        plugin: not enabled, or by another version",
            f"        ggeur enable {shlex.quote(str(package))}",
            "        or, without enabling it: ggeur --engine "
            "federatedscope --cfg FILE.yaml",
        ]
    if missing := install.missing_packages():
        lines += [
            f"MISSING for FederatedScope: {', '.join(missing)}",
            f"        pip install {' '.join(missing)}; or all: {install.EXTRA}",
        ]
    return lines
