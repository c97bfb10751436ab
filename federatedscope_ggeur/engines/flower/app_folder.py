"""Writes the app folder that ``flwr run`` takes to a federation."""

from __future__ import annotations

import json
from pathlib import Path
from pprint import pformat

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import divides_by_domain
from federatedscope_ggeur.cfg_ggeur.yaml_file import plain_config
from federatedscope_ggeur.errors import ConfigError, refusing
from federatedscope_ggeur.files import write_atomically

from ..run import load_federated_data

_PROJECT = """\
# Made by `ggeur flower-app`; `flwr run` takes this folder to a federation.
[project]
name = "ggeur-federation"
version = "1.0.0"
description = "A federation of federatedscope_ggeur"
dependencies = []  # every machine has federatedscope-ggeur and flwr already

[tool.flwr.app]
publisher = "ggeur"

[tool.flwr.app.components]
serverapp = "ggeur_federation.server:app"
clientapp = "ggeur_federation.client:app"

# To change settings: flwr run ... -c "settings='KEY VALUE ...'"
# The server sees relative paths from this folder; so does a simulation.
[tool.flwr.app.config]
settings = ""
folder = {folder}

[tool.flwr.federations]
default = "local-simulation"

[tool.flwr.federations.local-simulation]
options.num-supernodes = {clients}
"""
_SETTINGS = '''\
"""The federation's settings."""

FEDERATION = {settings}
'''
_APP = '''\
"""{what}"""
from ggeur_federation.settings import FEDERATION
from federatedscope_ggeur.engines.flower.{name} import {name}_app

app = {name}_app(FEDERATION)
'''


def write_app(folder: Path, cfg, place: Path) -> None:
    """Write the app folder for the federation of `cfg`.

    Flower sends the whole folder to the sites. It holds no secrets and no plugins.

    Parameters
    ----------
    folder : path
    cfg : CfgNode
        The settings of a server of real sites, or of a run on one machine. The latter
        is for simulation.
    place : path
        The folder that relative paths are seen from.

    Raises
    ------
    ConfigError
        The folder is not empty or cannot be written.
    DataError
        The rows of a run on one machine cannot be read or divided.
    """
    module = folder / "ggeur_federation"
    problem = f"cannot make the folder '{module}'"
    with refusing(problem):
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(
                f"'{folder}' is not empty; nothing is overwritten; name another folder"
            )
    if cfg.federate.mode != "distributed":
        cfg = _distributed(cfg)
    with refusing(problem):
        module.mkdir(parents=True)
    project = _PROJECT.format(
        folder=json.dumps(str(place.absolute())), clients=cfg.federate.client_num
    )
    files = {
        folder / "pyproject.toml": project,
        module / "__init__.py": "",
        module / "settings.py": _SETTINGS.format(settings=pformat(plain_config(cfg))),
        module / "server.py": _APP.format(what="Leads the run.", name="server"),
        module / "client.py": _APP.format(what="Answers for a site.", name="client"),
    }
    for path, text in files.items():
        write_atomically(path, text)


def _distributed(cfg):
    """The settings of the same run, with clients in processes of their own."""
    clients = str(len(load_federated_data(cfg).clients))
    changes = ["federate.mode", "distributed", "distribute.role", "server"]
    changes += ["federate.client_num", clients]
    if divides_by_domain(cfg):
        changes += ["data.splitter", "iid"]
    return load_config(cfg, changes, on_fs=True)
