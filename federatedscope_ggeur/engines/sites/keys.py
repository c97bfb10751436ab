"""A side's own key, and the keys of others that its people have pinned."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federatedscope_ggeur.crypto import digest, words
from federatedscope_ggeur.errors import ConfigError, refusing, shown
from federatedscope_ggeur.files import read_regular, write_atomically, write_once

#: In a side's folder of keys: its own key, the lines of others, and the words of those
#: that two people have compared.
IDENTITY, KNOWN, COMPARED = "identity.json", "known.txt", "compared.txt"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_KEY = re.compile(r"[0-9a-f]{64}")
_OUT, _FROM = "out", "from"
_KNOWN_HEAD = """\
# The keys of the other side, one line each, as its command prints it:
#   NAME KEY
# A later line changes a key, or puts a site out, for all files from a number on:
#   NAME KEY from 12
#   NAME out from 12
# Never take a line away while a run goes on.
"""


@dataclass(frozen=True)
class Identity:
    """A side's name and its secret Ed25519 key of 32 bytes."""

    name: str
    secret: bytes

    @property
    def key(self) -> bytes:
        """The public key, of 32 bytes."""
        return self._private().public_key().public_bytes_raw()

    @property
    def line(self) -> str:
        """The line that the other side adds to its ``known.txt``."""
        return f"{self.name} {self.key.hex()}"

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`, 64 bytes; the same for the same data."""
        return self._private().sign(data)

    def _private(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.secret)


def is_signed(data: bytes, signature: bytes, key: bytes) -> bool:
    """Whether the owner of the public key has signed `data`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def make_identity(folder: Path, name: str) -> Identity:
    """Make a new key in `folder`, and a file for the lines of others.

    Raises
    ------
    ConfigError
        The name is impossible, there is a key already, or a file cannot be written.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{shown(name)} cannot be the name of a side: use letters, digits, - and "
            "_, at most 63"
        )
    path = folder / IDENTITY
    if path.exists():
        raise ConfigError(
            f"'{path}' exists already; it is this side's key and is not replaced. "
            "Move it away to make another one"
        )
    made = Identity(name, secrets.token_bytes(32))
    private_folder(folder)
    write_once(path, json.dumps({"name": name, "secret": made.secret.hex()}), 0o600)
    if not (folder / KNOWN).exists():
        write_once(folder / KNOWN, _KNOWN_HEAD, 0o600)
    return made


def read_identity(folder: Path, command: str) -> Identity:
    """Read the key in `folder`; `command` makes one.

    Raises
    ------
    ConfigError
        There is no key, or the file is not one of this program.
    """
    path = folder / IDENTITY
    if not path.exists():
        raise ConfigError(
            f"this side has no key yet ('{path}'); make one by: {command}"
        )
    with refusing(f"'{path}' cannot be used", "it is not a key of this program"):
        said = json.loads(read_regular(path))
        name, secret = str(said["name"]), bytes.fromhex(said["secret"])
        if len(secret) != 32 or not NAME.fullmatch(name):
            raise ValueError
    return Identity(name, secret)


class PinnedKeys:
    """The keys that a side has pinned, from its ``known.txt``.

    A line counts once two people have compared the words of its key.

    Parameters
    ----------
    folder : path
    own : Identity
    serves : bool
        Whether this side is the server.

    Attributes
    ----------
    names : list of str
        In the order of their first lines.
    words : list of str
        For each key its name and its words: 128 bits of the digest of both sides' keys,
        the same on both sides.
    uncompared : list of str
        Those of them that nobody has compared yet.

    Raises
    ------
    ConfigError
        The file cannot be read, or a line is wrong; the error names the line.
    """

    def __init__(self, folder: Path, own: Identity, serves: bool):
        self._path, self._own, self._serves = folder / KNOWN, own, serves
        #: By name, from which number on which key holds; None: put out.
        self._lines: dict[str, list[tuple[int, bytes | None]]] = {}
        self.words: list[str] = []
        for number, line in enumerate(_lines_of(self._path), 1):
            words_of_line = line.partition("#")[0].split()
            if words_of_line:
                self._add(words_of_line, number)
        self.names = list(self._lines)
        self._compared = folder / COMPARED
        self._done = _lines_of(self._compared) if self._compared.exists() else []
        self.uncompared = [line for line in self.words if line not in self._done]

    def note_compared(self, line: str) -> None:
        """Note for good that two people have compared one of the `words`."""
        self._done.append(line)
        text = "".join(f"{one}\n" for one in self._done)
        write_atomically(self._compared, text, 0o600)
        self.uncompared.remove(line)

    def _add(self, said: list[str], line: int) -> None:
        name, key, *rest = [*said, ""][: max(2, len(said))]
        since = rest[1] if len(rest) == 2 and rest[0] == _FROM else ""
        good = NAME.fullmatch(name) and (key == _OUT or _KEY.fullmatch(key))
        good = good and (not rest or re.fullmatch(r"[1-9][0-9]{0,8}", since))
        if not good:
            raise ConfigError(
                f"'{self._path}', line {line}: expected NAME KEY, NAME KEY from N or "
                f"NAME out from N, got {shown(' '.join(said))}"
            )
        first, held = int(since or 1), self._lines.setdefault(name, [])
        if held and not rest:
            raise ConfigError(
                f"'{self._path}', line {line}: {name} stands there already; say from "
                f"which number on the other line holds: {name} ... from N"
            )
        held.append((first, None if key == _OUT else bytes.fromhex(key)))
        if key != _OUT:
            self.words.append(self._words(name, bytes.fromhex(key)))

    def _words(self, name: str, key: bytes) -> str:
        pair = (self._own.key, key) if self._serves else (key, self._own.key)
        return f"{name}: {words(digest('folder keys', *pair))}"

    def key(self, name: str, number: int) -> bytes | None:
        """The key that must have signed the file `number` of `name`.

        None if it was put out, or if nobody has compared the words of this key. An
        earlier key does not stand in for it.
        """
        latest = None
        for since, key in self._lines.get(name, ()):
            if since <= number:
                is_new = key is not None and self._words(name, key) in self.uncompared
                latest = None if is_new else key
        return latest

    def is_out(self, name: str, number: int) -> bool:
        """Whether the file `number` of `name` comes after it was put out."""
        held = [key for since, key in self._lines.get(name, ()) if since <= number]
        return not held or held[-1] is None


def _lines_of(path: Path) -> list[str]:
    with refusing(f"'{path}' cannot be read"):
        return read_regular(path).decode().splitlines()


def unusable(path: Path, error: Exception) -> ConfigError:
    """The error of a file or folder that this side cannot use."""
    problem = getattr(error, "strerror", None) or error
    return ConfigError(f"'{path}' cannot be used: {problem}")


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter, unless it exists.

    Raises
    ------
    ConfigError
        It cannot be made, or it is a link, or it is not the owner's alone.
    """
    with refusing(f"cannot make the folder '{folder}'"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        mode = folder.lstat().st_mode
    if folder.is_symlink() or (os.name == "posix" and mode & 0o077):
        raise ConfigError(
            f"'{folder}' holds secrets, but it is a link or others may enter it; "
            f"mend that by: chmod 700 '{folder}'"
        )
