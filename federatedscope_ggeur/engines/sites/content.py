"""Packs several messages into the content of one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.exchanges.base import all_kinds

from .leading import FAILED, FINISH
from .transport.frames import Envelope, read_envelope, to_frames
from .transport.settings import TransportSettings

_SIZE = 4
#: For messages that their receiver limits.
UNLIMITED = TransportSettings(max_message=2**60)
#: A file holds at most so many messages.
_MOST = 64


def ends_file(kind: str) -> bool:
    """Whether a message of the server is the last in its file: it asks or ends."""
    asking = (k.message for k in all_kinds() if k.answer_message)
    return kind in (FINISH, FAILED, *asking)


def packed(envelopes: Sequence[Envelope], settings: TransportSettings) -> bytes:
    """The content of a file that holds these messages.

    Raises
    ------
    ConfigError
        The receiver would refuse one of them.
    """
    try:
        frames = [frame for one in envelopes for frame in to_frames(one, settings)]
    except MessageError as error:
        raise ConfigError(error.problem) from error
    return b"".join(len(frame).to_bytes(_SIZE, "big") + frame for frame in frames)


def unpacked(
    data: bytes,
    settings: TransportSettings,
    sender: str,
    due: Callable[[], int] | None = None,
) -> list[Envelope]:
    """The messages in a file's content; see `read_envelope` for `due`.

    Raises
    ------
    MessageError
        The content holds no messages, or one is too large.
    """
    envelopes: list[Envelope] = []
    frames = _frames(data)
    while (one := read_envelope(frames, settings, sender, due)) is not None:
        envelopes.append(one)
        if len(envelopes) > _MOST:
            raise MessageError("too many messages", field="parts", sender=sender)
    return envelopes


def _frames(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start : start + _SIZE], "big")
        start += _SIZE
        yield data[start : start + size]
        start += size
