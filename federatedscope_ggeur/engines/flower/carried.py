"""What travels between the server and a resident: a session, then messages.

Flower and the ClientApp do not change it. A session is a name that a resident chooses
when it starts. A new session tells the server that the resident has lost all earlier
messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.transport.frames import Envelope, read_envelope, to_frames
from federatedscope_ggeur.transport.settings import TransportSettings

#: Bytes of a session, and that of a question to whoever is there.
SESSION = 16
NOBODY = bytes(SESSION)
#: Kinds of messages beside the course's own. DONE: all was taken, and no answer is due.
#: RESTARTED: the session of the request is over.
DONE, RESTARTED = "flower.done", "flower.restarted"
_LENGTH = struct.Struct(">I")


def packed(
    session: bytes, envelopes: Sequence[Envelope], settings: TransportSettings
) -> bytes:
    """Messages as bytes.

    Raises
    ------
    MessageError
        The receiver would refuse one of the messages.
    """
    frames = chain.from_iterable(to_frames(one, settings) for one in envelopes)
    pieces = chain.from_iterable((_LENGTH.pack(len(f)), f) for f in frames)
    return b"".join([session, *pieces])


def unpacked(
    data: bytes,
    settings: TransportSettings,
    sender: str,
    due: Callable[[], int] | None = None,
) -> tuple[bytes, list[Envelope]]:
    """The session and the messages in `data`; see `read_envelope` for `due`.

    Raises
    ------
    MessageError
        `data` holds no messages, or a message is too large.
    """
    if len(data) < SESSION:
        raise MessageError("is missing", field="session", sender=sender)
    frames, envelopes = _frames(memoryview(data)[SESSION:], sender), []
    while (one := read_envelope(frames, settings, sender, due)) is not None:
        envelopes.append(one)
    return data[:SESSION], envelopes


def _frames(data: memoryview, sender: str) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        head = data[start : start + _LENGTH.size]
        size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else len(data)
        start += _LENGTH.size
        if size > len(data) - start:
            raise MessageError("is cut off", field="frame", sender=sender)
        yield bytes(data[start : start + size])
        start += size
