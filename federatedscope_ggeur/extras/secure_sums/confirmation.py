"""Lets people compare keys by telephone before a client sends anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.printable import say

from .pairwise import words_of

#: A person may mishear one of 32 digits on the telephone, so there are several tries.
_TRIES = 3


def require_terminal(number: int) -> None:
    """Raise `GGEURError` if the client has no terminal for a person to type on."""
    try:
        is_there = sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # it is closed
        is_there = False
    if not is_there:
        raise _refusal(
            number, "there is no terminal to type on; start the client in a terminal"
        )


def confirm(number: int, roster: Sequence[int], keys: Sequence[bytes]) -> None:
    """Wait until a person types the words of another client in the roster.

    The person at the other client reads the words out by telephone. If this succeeds at
    every client, all clients have the same keys, and the server has invented none.

    Raises
    ------
    GGEURError
        There is no terminal, the input ends, or the words are wrong.
    """
    require_terminal(number)
    at = roster.index(number)
    reader, listener = roster[(at + 1) % len(roster)], roster[at - 1]
    say(
        f"client {number}: compare keys by telephone before anything is sent "
        f"({setting('secure_sums_confirm')})",
        f"  read to client {listener}: {words_of(number, roster, keys)}",
        file=sys.stderr,
    )
    wanted = words_of(reader, roster, keys).replace(" ", "")
    for left in reversed(range(_TRIES)):
        say(f"  type what client {reader} reads to you:", file=sys.stderr)
        line = sys.stdin.readline()
        if not line:
            raise _refusal(number, "the input ended before the words were typed")
        if "".join(line.split()).replace("-", "").lower() == wanted:
            return
        if left:
            say(
                f"  these are not the words of client {reader}; type them once more",
                file=sys.stderr,
            )
    raise _refusal(
        number,
        f"the typed words are not those of client {reader}. Either a person misheard "
        "them, or the server sent keys that clients did not make",
    )


def _refusal(number: int, problem: str) -> GGEURError:
    return GGEURError(
        f"client {number}: {setting('secure_sums_confirm')}: {problem}; nothing is sent"
    )
