"""``ggeur flower-app``: writes the app folder that ``flwr run`` needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import add_options, command_parser
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.printable import say

_OPTIONS = """
folder FOLDER: a new folder
--cfg FILE: the federation's file
settings [KEY VALUE...]: override settings of the file
"""


def flower_app(arguments: Sequence[str]) -> int:
    """Write the Flower app folder of a federation."""
    parser = command_parser(
        "flower-app",
        "The file is that of a server of real sites, or of a run on one machine; the "
        "latter is for Flower's simulation.",
    )
    add_options(parser, _OPTIONS, cfg={"required": True})
    options = parser.parse_intermixed_args(arguments)
    from federatedscope_ggeur.cfg_ggeur.load import load_config

    from ..sites.roles import check_role
    from .app_folder import write_app

    path = Path(find_config(options.cfg))
    cfg = load_config(path, options.settings, on_fs=True)
    place, federation = Path.cwd(), "local-simulation"
    if cfg.federate.mode == "distributed":
        check_role(cfg, "server")
        place, federation = path.parent, "NAME"
    write_app(Path(options.folder), cfg, place)
    say(f"run it: flwr run {options.folder} {federation} --stream")
    return 0
