"""``ggeur site``: the process that answers for a site in a Flower federation."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.examples import find_config


def site(arguments: Sequence[str]) -> int:
    """Answer the server's questions for this site's client until the run is over."""
    parser = command_parser(
        "site",
        "Only this process reads the site's data. Flower's ClientApp passes it the "
        "server's questions, and it answers those that the site's own file allows.",
    )
    parser.add_argument("--cfg", metavar="FILE", required=True, help="the site's file")
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="the site's own folder, kept from run to run; by default outdir/expname",
    )
    parser.add_argument(
        "--socket",
        metavar="PATH",
        type=Path,
        help="the address at which ClientApps connect (default: the file socket in "
        "the folder)",
    )
    parser.add_argument(
        "--group",
        metavar="GROUP",
        default="",
        help="the system's group that may connect to the socket, too",
    )
    parser.add_argument(
        "--new-run",
        action="store_true",
        help="answer another run than the one that the folder belongs to",
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY VALUE", help="override settings of the file"
    )
    options = parser.parse_intermixed_args(arguments)
    from federatedscope_ggeur.cfg_ggeur.identity import check_role
    from federatedscope_ggeur.cfg_ggeur.load import load_config
    from federatedscope_ggeur.cfg_ggeur.tracking import experiment_name
    from federatedscope_ggeur.commands.console import shown_on_console
    from federatedscope_ggeur.engines.flower.resident import serve_site

    cfg = load_config(find_config(options.cfg), options.settings, on_fs=True)
    check_role(cfg, "client")
    folder = Path(options.folder or Path(cfg.outdir, experiment_name(cfg)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with shown_on_console(cfg.verbose > 0):
        serve_site(cfg, folder, options.new_run, options.socket, options.group)
    return 0
