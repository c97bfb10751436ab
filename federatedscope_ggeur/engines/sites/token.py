"""``ggeur token``: makes the join token of one client of a distributed run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.errors import ConfigError

from .transport.security import Security, make_secret, make_token, write_private


def token(arguments: Sequence[str]) -> int:
    """Print the join token of one client, or write it into a new file."""
    parser = command_parser(
        "token",
        "Put the token into a file on the client, and name this file in "
        "ggeur.join_token.",
    )
    parser.add_argument(
        "secret", help="the server's secret file (ggeur.join_secret); made if missing"
    )
    parser.add_argument("number", type=int, help="the client's number")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the token into a new file that only you can read, instead of "
        "printing it",
    )
    options = parser.parse_args(arguments)
    if options.number < 1:
        parser.error(f"clients are numbered from 1, got {options.number}")
    if options.out is not None and os.path.lexists(options.out):
        raise ConfigError(f"--out: '{options.out}' exists already; name another file")
    if make_secret(options.secret):
        print(f"made the secret {options.secret}", file=sys.stderr)
    secret = Security(join_secret=options.secret).secret()
    assert secret is not None  # the file is there now
    made = make_token(secret, options.number)
    if options.out is None:
        print(made)
    elif not write_private("--out", options.out, f"{made}\n"):
        raise ConfigError(f"--out: '{options.out}' exists already; name another file")
    else:
        print(f"client {options.number}'s token is in {options.out}")
    return 0
