"""``federatedscope-ggeur token``: what one client of a distributed run joins with."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.transport.security import Security, make_secret, make_token


def token(arguments: Sequence[str]) -> int:
    """Print the join token of one client."""
    parser = command_parser(
        "token",
        "Put it into a file on the client and name that in ggeur.join_token.",
    )
    parser.add_argument(
        "secret", help="the server's secret file (ggeur.join_secret); made if missing"
    )
    parser.add_argument("number", type=int, help="the client's number")
    options = parser.parse_args(arguments)
    if options.number < 1:
        parser.error(f"clients are numbered from 1, got {options.number}")
    if make_secret(options.secret):
        print(f"made the secret {options.secret}", file=sys.stderr)
    print(make_token(Security(join_secret=options.secret).secret(), options.number))
    return 0
