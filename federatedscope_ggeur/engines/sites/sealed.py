"""Makes and opens the files that travel: signed, sealed, and padded.

A file is a signature (Ed25519, 64 bytes) of the SHA-256 of all that follows: the length
of a header (4 bytes), the header in JSON, and the body. The header says what the file
is: the federation, the run, sender, receiver, number, and the hash of the sender's file
before it. A greeting has no body; its header holds the sender's key of sealing for this
run. All other bodies are sealed by ChaCha20-Poly1305, by a key that HKDF makes from the
X25519 secret of both sides, the header, and the content. So the same content under the
same number gives the same bytes, and no key seals two contents.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from federatedscope_ggeur.crypto import public_key, shared_secret
from federatedscope_ggeur.errors import MessageError

from .keys import Identity, is_signed

VERSION = 1
_SIGNED = b"ggeur folder 1\n"
_SIGNATURE, _LENGTH, _HEADER_LIMIT = 64, 4, 4096
_NONCE, _TAG, _SIZE = bytes(12), 16, 8
_RUN = re.compile("[0-9a-f]{32}")
_NO_HEADER = ValueError, KeyError, TypeError
#: The shortest padded content in bytes.
_LEAST = 4096


@dataclass(frozen=True)
class Context:
    """What a file is; both sides know it before the file is opened.

    Attributes
    ----------
    federation, run, sender, receiver : str
    number : int
        Files of one sender to one receiver count from 1.
    before : str
        The SHA-256 of the sender's file before this one; "" for the first.
    answers : int
        The number of the receiver's file that this one answers; 0 for none.
    """

    federation: str
    run: str
    sender: str
    receiver: str
    number: int
    before: str = ""
    answers: int = 0


@dataclass(frozen=True)
class Greeting:
    """A side's first file: its key for this run, and the number of the client."""

    run: str
    key: bytes
    client: int


def same_but_signature(one: bytes, other: bytes) -> bool:
    """Whether two files are the same, by whatever key they are signed."""
    return one[_SIGNATURE:] == other[_SIGNATURE:]


def is_file_of(key: bytes, data: bytes) -> bool:
    """Whether the owner of the public `key` has signed the file."""
    return is_signed(_to_sign(memoryview(data)[_SIGNATURE:]), data[:_SIGNATURE], key)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def padded_size(size: int) -> int:
    """The bytes of a padded content: a power of two, at least 4096."""
    return max(_LEAST, 1 << (size + _SIZE - 1).bit_length())


def largest_file(content: int) -> int:
    """The bytes of the longest file with so much content."""
    return _SIGNATURE + _LENGTH + _HEADER_LIMIT + padded_size(content) + _TAG


def greeting(context: Context, secret: bytes, client: int, own: Identity) -> bytes:
    """Make a side's first file of a run; `secret` is its X25519 key for this run."""
    header = {**asdict(context), "key": public_key(secret).hex(), "client": client}
    return _signed(header, b"", own)


def read_greeting(data: bytes, wanted: Context, key: bytes, name: str) -> Greeting:
    """Read the first file of another side, signed by the pinned `key`.

    With `wanted.run` "", any run will do.

    Raises
    ------
    MessageError
        The file is not what is `wanted`; `name` is the name of the file.
    """
    header, body = _opened(data, key, name)
    told, client = header.pop("key", None), header.pop("client", None)
    run = header.get("run")
    if not wanted.run and isinstance(run, str) and _RUN.fullmatch(run):
        wanted = replace(wanted, run=run)
    _check(header, wanted, name)
    try:
        made = Greeting(wanted.run, bytes.fromhex(told), int(client))
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageError("is no greeting", field="key", sender=name) from error
    if body or len(made.key) != 32 or not 1 <= made.client < 2**31:
        raise MessageError("is no greeting", field="key", sender=name)
    return made


class Channel:
    """Seals files to the other side of a run, and opens files.

    Parameters
    ----------
    secret : bytes
        This side's X25519 key for the run.
    peer : bytes
        The other side's public key for the run.
    """

    def __init__(self, secret: bytes, peer: bytes):
        self._shared = shared_secret(secret, peer)

    def seal(self, context: Context, content: bytes, own: Identity) -> bytes:
        """Make the file of this context and content; always the same bytes."""
        size = len(content).to_bytes(_SIZE, "big")
        padded = (size + content).ljust(padded_size(len(content)), b"\0")
        about = json.dumps(asdict(context)).encode()
        salt = hmac.new(self._shared, about + b"\n" + padded, hashlib.sha256).digest()
        header = {**asdict(context), "salt": salt[:16].hex()}
        body = self._cipher(header).encrypt(_NONCE, padded, _bytes(header))
        return _signed(header, body, own)

    def open(
        self, data: bytes, wanted: Context, key: bytes | None, name: str
    ) -> tuple[bytes, int]:
        """The content of a file, and the number of the file that it answers.

        Parameters
        ----------
        data : bytes
        wanted : Context
            Its `answers` is not compared.
        key : bytes or None
            The public key that must have signed the file; None for an own file.
        name : str
            The name of the file, for errors.

        Raises
        ------
        MessageError
            The key has not signed the file, or it is not what is `wanted`. Nothing in
            it is read before its signature is checked.
        """
        from cryptography.exceptions import InvalidTag

        header, body = _opened(data, key, name)
        plain = {k: v for k, v in header.items() if k != "salt"}
        _check(plain, wanted, name)
        try:
            padded = self._cipher(header).decrypt(_NONCE, body, _bytes(header))
        except (InvalidTag, *_NO_HEADER) as error:
            problem = "it is not sealed to this side of this run"
            raise MessageError(problem, field="seal", sender=name) from error
        size = int.from_bytes(padded[:_SIZE], "big")
        if padded_size(size) != len(padded):
            raise MessageError("wrong padding", field="seal", sender=name)
        return padded[_SIZE : _SIZE + size], header["answers"]

    def _cipher(self, header: dict[str, Any]) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        salt = bytes.fromhex(header["salt"])
        made = HKDF(SHA256(), 32, salt, _SIGNED + _bytes(header))
        return ChaCha20Poly1305(made.derive(self._shared))


def _bytes(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True).encode()


def _signed(header: dict[str, Any], body: bytes, own: Identity) -> bytes:
    text = _bytes({"version": VERSION, **header})
    rest = len(text).to_bytes(_LENGTH, "big") + text + body
    return own.sign(_to_sign(rest)) + rest


def _to_sign(rest: bytes | memoryview) -> bytes:
    return _SIGNED + hashlib.sha256(rest).digest()


def _opened(data: bytes, key: bytes | None, name: str) -> tuple[dict[str, Any], bytes]:
    """The header and body of a file, after the signature is checked."""
    rest = data[_SIGNATURE:]
    if key is not None and not is_file_of(key, data):
        problem = "the pinned key has not signed this file, or it is not whole yet"
        raise MessageError(problem, field="signature", sender=name)
    size = int.from_bytes(rest[:_LENGTH], "big")
    try:
        header = json.loads(rest[_LENGTH : _LENGTH + size])
        version = header.pop("version")
    except (*_NO_HEADER, AttributeError, RecursionError) as error:
        raise MessageError("is not a header", field="header", sender=name) from error
    if version != VERSION:
        problem = "run the same release of federatedscope_ggeur everywhere"
        raise MessageError(problem, field="version", sender=name)
    return header, rest[_LENGTH + size :]


def _check(header: dict[str, Any], wanted: Context, name: str) -> None:
    """Compare a header with what is wanted; `answers` may be any number."""
    expected = asdict(wanted)
    if header.keys() != expected.keys():
        raise MessageError("is not a header", field="header", sender=name)
    for field, value in expected.items():
        same = header[field] == value or field == "answers"
        if not same or type(header[field]) is not type(value):
            raise MessageError(
                f"it says {header[field]!r:.80}, and this place is of {value!r:.80}: "
                "whoever carries the files has moved or repeated one",
                field=field,
                sender=name,
            )
