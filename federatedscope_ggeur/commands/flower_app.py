"""``ggeur flower-app``: writes the app folder that ``flwr run`` needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.examples import find_config


def flower_app(arguments: Sequence[str]) -> int:
    """Write the Flower app folder of a federation."""
    parser = command_parser("flower-app")
    parser.add_argument("folder", metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--cfg", metavar="FILE", required=True, help="the federation's file"
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY VALUE", help="override settings of the file"
    )
    options = parser.parse_intermixed_args(arguments)
    from federatedscope_ggeur.cfg_ggeur.identity import check_role
    from federatedscope_ggeur.cfg_ggeur.load import load_config
    from federatedscope_ggeur.engines.flower.app_folder import write_app

    cfg = load_config(find_config(options.cfg), options.settings, on_fs=True)
    check_role(cfg, "server")
    write_app(Path(options.folder), cfg)
    print(f"start it in a Flower federation: flwr run {options.folder} NAME --stream")
    return 0
