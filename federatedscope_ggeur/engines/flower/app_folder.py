"""Writes the app folder that ``flwr run`` takes to a federation."""

from __future__ import annotations

import secrets
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import write_atomically

_PROJECT = """\
# Made by `ggeur flower-app`; `flwr run` takes this folder to a federation.
[project]
name = "ggeur-federation"
version = "1.0.0"
description = "A federation of federatedscope_ggeur"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "ggeur"

[tool.flwr.app.components]
serverapp = "ggeur_federation.server:app"
clientapp = "federatedscope_ggeur.engines.flower.client:app"

# To change settings of federation.yaml: flwr run ... -c "settings='KEY VALUE ...'"
# The folder is the run's; by default it is made below `outdir`.
[tool.flwr.app.config]
settings = ""
folder = ""
"""
_SERVER = '''\
"""Leads the federation of federation.yaml."""

from pathlib import Path

from federatedscope_ggeur.engines.flower.server import server_app

# A resident answers one run only, the first that asks.
RUN = "{run}"
app = server_app(Path(__file__).with_name("federation.yaml"), RUN)
'''


def new_run_id() -> str:
    """Make an id for a run. A resident only answers the run that it belongs to."""
    return secrets.token_hex(16)


def write_app(folder: Path, cfg, run: str = "") -> None:
    """Write the app folder for the federation of `cfg`, and the run `run`.

    Without `run` it is a new run. Flower sends the whole folder to the sites. It holds
    no secrets and no plugins.

    Raises
    ------
    ConfigError
        The folder is not empty or cannot be written.
    """
    module = folder / "ggeur_federation"
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(
                f"'{folder}' is not empty; nothing is overwritten; name another folder"
            )
        module.mkdir(parents=True)
    except OSError as error:
        problem = error.strerror or error
        raise ConfigError(f"cannot make the folder '{module}': {problem}") from error
    files = {
        folder / "pyproject.toml": _PROJECT,
        module / "__init__.py": "",
        module / "federation.yaml": cfg.dump(),
        module / "server.py": _SERVER.format(run=run or new_run_id()),
    }
    for path, text in files.items():
        write_atomically(path, text)
