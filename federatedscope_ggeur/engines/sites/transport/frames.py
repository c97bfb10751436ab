"""Cuts messages into frames and puts them together again, without pickle.

A frame is one gRPC message: a letter, then bytes. ``H`` is the header of a message, a
JSON object. ``D`` is data of one part. A receiver checks the header first. It takes
only as much data as the header announced. Nothing is compressed: parameters hardly
shrink.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain
from typing import Any, NamedTuple

from federatedscope_ggeur.errors import MessageError

from .settings import HEADER_LIMIT, JOIN_LIMIT, TransportSettings

VERSION = 1
JOIN = "join_in"
#: Messages of the transport itself. WELCOME: the client is admitted. LEAVE: the client
#: will send no more. ALIVE: the server is still there.
WELCOME, LEAVE = "transport.welcome", "transport.leave"
ALIVE = "transport.alive"
PARTS_LIMIT = 64
LARGEST_NUMBER = 2**31 - 1
_LARGEST_SIZE = 2**60
_TOKEN_LIMIT = 200

_HEADER, _DATA = b"H", b"D"
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_PLAIN = frozenset({"version", "kind", "state", "sizes"})
_JOINING = _PLAIN | {"number", "token"}


@dataclass(frozen=True)
class Envelope:
    """One message between client and server.

    Attributes
    ----------
    kind : str
        A short ASCII name, e.g. ``"statistics"``. Names that begin with
        ``"transport."`` are the transport's own.
    state : int
        The number of the round.
    parts : tuple of bytes
        At most 64 parts; their meaning depends on the kind.
    """

    kind: str
    state: int = 0
    parts: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes of all parts."""
        return sum(map(len, self.parts))


class Introduction(NamedTuple):
    """The identity that a client claims."""

    number: int
    token: str


def to_frames(
    envelope: Envelope,
    settings: TransportSettings,
    introduction: Introduction | None = None,
) -> Iterator[bytes]:
    """Cut `envelope` into frames, each of which is made only when it is needed.

    Raises
    ------
    MessageError
        A receiver would refuse this message. The error is raised before the first
        frame.
    """
    header = {
        "version": VERSION,
        "kind": envelope.kind,
        "state": envelope.state,
        "sizes": [len(part) for part in envelope.parts],
    }
    limit = settings.max_message
    if introduction is not None:
        header.update(introduction._asdict())
        limit = _join_limit(settings)
    _check(header, limit, "this process")
    first = _HEADER + json.dumps(header).encode()
    return chain([first], _data_frames(envelope.parts, settings))


def read_envelope(
    frames: Iterator[bytes],
    settings: TransportSettings,
    sender: str,
    due: Callable[[], int] | None = None,
) -> Envelope | None:
    """Read the next message of a stream; None if the stream has ended properly.

    Parameters
    ----------
    due : callable () -> int, optional
        Returns how many bytes a message may have at most. It is called when the header
        arrives.

    Raises
    ------
    MessageError
        The frames are not a valid message within the limits.
    """
    frame = next(frames, None)
    if frame is None:
        return None
    header = _header(frame, _PLAIN, settings.max_message, sender)
    size = sum(header["sizes"])
    most = settings.max_message if due is None else due()
    if size > most:
        problem = f"a message may have at most {most} bytes now, got {size}"
        raise MessageError(problem, field="sizes", sender=sender)
    return _envelope(header, frames, settings, sender)


def read_join(
    frames: Iterator[bytes], settings: TransportSettings, sender: str
) -> tuple[Envelope, Introduction]:
    """Read the first message of a stream, by which a client joins.

    Raises `MessageError` like `read_envelope`.
    """
    frame = next(frames, None)
    if frame is None:
        raise MessageError(
            "the stream ended before this message", field=JOIN, sender=sender
        )
    header = _header(frame, _JOINING, _join_limit(settings), sender)
    if header["kind"] != JOIN:
        raise MessageError(
            f"a message of kind {header['kind']!r} instead of {JOIN!r}",
            field="kind",
            sender=sender,
        )
    who = Introduction(header["number"], header["token"])
    return _envelope(header, frames, settings, sender), who


def _join_limit(settings: TransportSettings) -> int:
    return min(settings.max_message, JOIN_LIMIT - HEADER_LIMIT)


def _data_frames(
    parts: tuple[bytes, ...], settings: TransportSettings
) -> Iterator[bytes]:
    for part in parts:
        # A view, not a copy: hundreds of receivers share the part. Each copies one
        # frame at a time.
        view = memoryview(part)
        for start in range(0, len(view), settings.max_frame):
            yield b"".join((_DATA, view[start : start + settings.max_frame]))


def _header(frame: bytes, keys: frozenset, limit: int, sender: str) -> Mapping:
    refusal = partial(MessageError, field="header", sender=sender)
    if frame[:1] == _DATA:
        raise refusal("data instead of a header: more data than was announced")
    if frame[:1] != _HEADER or len(frame) > HEADER_LIMIT:
        raise refusal(
            f"a frame of {len(frame)} bytes that is not a header of this program"
        )
    try:
        header = json.loads(frame[1:])
    # RecursionError: nested too deeply. ValueError: not JSON, or a number too long.
    except (ValueError, RecursionError) as error:
        raise refusal(f"not JSON ({type(error).__name__})") from error
    if not isinstance(header, dict) or set(header) != keys:
        raise refusal(f"expected an object with the keys {', '.join(sorted(keys))}")
    _check(header, limit, sender)
    return header


def _check(header: Mapping, limit: int, sender: str) -> None:
    def refuse(field: str, problem: str):
        raise MessageError(problem, field=field, sender=sender)

    version, kind, state = header["version"], header["kind"], header["state"]
    if type(version) is not int or version != VERSION:
        refuse(
            "version",
            f"{version!r:.80} instead of {VERSION}: run the same release of "
            "federatedscope_ggeur everywhere",
        )
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        refuse("kind", f"expected a short ASCII name, got {kind!r:.80}")
    if not _within(state, 0, LARGEST_NUMBER):
        refuse("state", f"expected the number of a round, got {state!r:.80}")
    _check_sizes(header["sizes"], limit, refuse)
    if not _within(header.get("number", 1), 1, LARGEST_NUMBER):
        refuse(
            "number",
            f"{header['number']!r:.80} is not a client's number: distribute.data_idx "
            "counts from 1",
        )
    token = header.get("token", "")
    if not isinstance(token, str) or len(token) > _TOKEN_LIMIT:
        refuse("token", "expected a short text")


def _check_sizes(sizes: Any, limit: int, refuse) -> None:
    if not isinstance(sizes, list) or not all(
        _within(size, 0, _LARGEST_SIZE) for size in sizes
    ):
        refuse("sizes", f"expected a list of byte counts, got {sizes!r:.80}")
    if len(sizes) > PARTS_LIMIT:
        refuse("sizes", f"{len(sizes)} parts; a message has at most {PARTS_LIMIT}")
    if sum(sizes) > limit:
        refuse(
            "sizes",
            f"{sum(sizes)} bytes are more than the limit of {limit}: raise "
            "distribute.grpc_max_send_message_length and "
            "distribute.grpc_max_receive_message_length everywhere, or send less",
        )


def _within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _envelope(
    header: Mapping, frames: Iterator[bytes], settings: TransportSettings, sender: str
) -> Envelope:
    parts = tuple(
        _part(index, size, frames, settings.max_frame, sender)
        for index, size in enumerate(header["sizes"])
    )
    return Envelope(header["kind"], header["state"], parts)


def _part(
    index: int, size: int, frames: Iterator[bytes], most: int, sender: str
) -> bytes:
    # Not a list: a list of tiny pieces takes many times the memory of its data.
    data, missing = BytesIO(), size
    while missing:
        frame = next(frames, None)
        try:
            piece = _piece(frame, min(missing, most))
        except ValueError as error:
            raise MessageError(
                f"{error} (after {size - missing} of {size} bytes)",
                field=f"part {index}",
                sender=sender,
            ) from error
        if len(piece) == size:
            return piece
        missing -= data.write(piece)
    return data.getvalue()


def _piece(frame: bytes | None, most: int) -> bytes:
    """Read the data in `frame`, 1 to `most` bytes; raises `ValueError` otherwise."""
    if frame is None:
        raise ValueError("the stream ended inside a message")
    if frame[:1] != _DATA:
        raise ValueError("expected a frame of data, got another kind")
    piece = frame[1:]
    if len(piece) > most:
        raise ValueError(
            f"the frame has more than the {most} bytes that may follow here"
        )
    if not piece:
        raise ValueError("an empty frame")
    return piece
