"""Lets clients check each other's mask keys, and whom a sum would reveal.

Keys are signed, or people compare them by telephone before a client sends anything.

Decides whether sums over several rosters together reveal few clients.

Whoever has the sums of several rosters can compute all their rational combinations. A
combination reveals a weighted sum over the clients whose weight is not zero.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

from federatedscope_ggeur.crypto import KEY_BYTES
from federatedscope_ggeur.errors import (
    ConfigError,
    GGEURError,
    MessageError,
    refusing,
    setting,
)
from federatedscope_ggeur.printable import say

from .messages import MaskedRequest
from .vectors import signed_bytes, words_of

_LINE = re.compile(rf"\s*(\d{{1,6}})\s+([0-9a-fA-F]{{{2 * KEY_BYTES}}})\s*(#.*)?")


def verifying_keys(path: str | Path) -> dict[int, bytes]:
    """Read the Ed25519 public keys of clients from a file.

    Each client has a line ``<client number> <64 hex digits>``. Lines that begin with #
    are comments.

    Raises
    ------
    ConfigError
        The file cannot be read, a line has a wrong form, or a client or key occurs
        twice.
    """
    where = setting("secure_sums_trust")
    with refusing(f"{where}: '{path}' cannot be read"):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    keys: dict[int, bytes] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(
                f"{where}: '{path}', line {place}: expected a client's number and the "
                "64 hex digits of its Ed25519 public key"
            )
        number, key = int(match[1]), bytes.fromhex(match[2])
        if number in keys or key in keys.values():
            raise ConfigError(
                f"{where}: '{path}', line {place}: this client or key occurs "
                "twice; leave one of the lines out"
            )
        keys[number] = key
    return keys


class Signer:
    """A client's signing key.

    Parameters
    ----------
    path : str
        The PEM file of the client's Ed25519 private key; ``{client}`` in the path
        stands for `number`.
    number : int

    Raises
    ------
    ConfigError
        The file cannot be read, or it holds no Ed25519 key.
    """

    def __init__(self, path: str, number: int):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        where, self._number = setting("secure_sums_signing_key"), number
        file = Path(path.replace("{client}", str(number)))
        no_key = "it has no private key in PEM format"
        with refusing(f"{where}: '{file}' cannot be used", no_key):
            key: Any = load_pem_private_key(file.read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{where}: '{file}' holds no Ed25519 key")
        self._key = key

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, session: bytes, key: bytes, commitment: bytes) -> bytes:
        """The signature of the client's mask key and commitment: 64 bytes."""
        return self._key.sign(signed_bytes(session, self._number, key, commitment))


def check_signatures(trusted: dict[int, bytes], request: MaskedRequest) -> None:
    """Raise `MessageError` unless each client has signed its key and commitment."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for number, key, commitment, signature in zip(
        request.roster, request.keys, request.commitments, request.signatures
    ):
        if number not in trusted:
            problem = (
                f"client {number} is missing in the file of "
                f"{setting('secure_sums_trust')}"
            )
        elif not signature:
            problem = f"the key of client {number} is not signed"
        else:
            verifier = Ed25519PublicKey.from_public_bytes(trusted[number])
            signed = signed_bytes(request.session, number, key, commitment)
            try:
                verifier.verify(signature, signed)
                continue
            except InvalidSignature:
                problem = f"the key of client {number} is not signed by that client"
        raise MessageError(problem, field="signatures", sender="the server")


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


#: If the search needs more sets of clients, the rosters are refused.
MOST_SETS = 20_000


def tells_of_few(rosters: Sequence[Collection[Hashable]], least: int) -> bool:
    """Whether some combination of the rosters' sums covers fewer than `least` clients.

    The test is exact: it looks for a nonzero vector with fewer than `least` nonzero
    entries in the rational span of the rosters' 0-1 vectors. The result is also True if
    the search would take too long.

    Notes
    -----
    A vector of the span has equal entries for clients that are in the same rosters. A
    combination contains all or none of these clients. The span has a nonzero vector
    that is zero outside a set T of clients if the rosters have a smaller rank without
    T.
    """
    everyone = sorted({k for roster in rosters for k in roster}, key=repr)
    columns = Counter(tuple(k in roster for roster in rosters) for k in everyone)
    few = [column for column, size in columns.items() if size < least]
    whole, tried = _rank(list(columns)), 0
    for size in range(1, least):
        for part in combinations(few, size):
            tried += 1
            if tried > MOST_SETS:
                return True
            if sum(columns[column] for column in part) >= least:
                continue
            if _rank([c for c in columns if c not in part]) < whole:
                return True
    return False


def _rank(rows: Sequence[Sequence[int]]) -> int:
    """The rank of a matrix over the rational numbers."""
    left, rank = [[Fraction(x) for x in row] for row in rows], 0
    while left:
        row = left.pop()
        place = next((i for i, x in enumerate(row) if x), None)
        if place is None:
            continue
        rank += 1
        for other in left:
            if other[place]:
                share = other[place] / row[place]
                other[:] = [a - share * b for a, b in zip(other, row)]
    return rank
