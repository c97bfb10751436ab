"""What travels between the server and a resident: a session, then messages.

Flower and the ClientApp do not change it. A session is a name that a resident chooses
when it starts. A new session tells the server that the resident has lost all earlier
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO

from federatedscope_ggeur.engines.flower.pipe import read_block, write_block
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.transport.frames import Envelope, read_envelope, to_frames
from federatedscope_ggeur.transport.settings import TransportSettings

#: Bytes of a session, and the session of a request to whoever is there.
SESSION = 16
NOBODY = bytes(SESSION)
#: Kinds of messages beside the course's own. DONE: all was taken, and no answer is due.
#: RESTARTED: the session of the request is over.
DONE, RESTARTED = "flower.done", "flower.restarted"


def packed(
    session: bytes, envelopes: Sequence[Envelope], settings: TransportSettings
) -> bytes:
    """Pack a session and messages into bytes.

    Raises
    ------
    MessageError
        The receiver would refuse one of the messages.
    """
    file = BytesIO()
    file.write(session)
    for envelope in envelopes:
        for frame in to_frames(envelope, settings):
            write_block(file, frame)
    return file.getvalue()


def unpacked(
    data: bytes,
    settings: TransportSettings,
    sender: str,
    due: Callable[[], int] | None = None,
) -> tuple[bytes, list[Envelope]]:
    """Unpack the session and the messages in `data`.

    See `read_envelope` for `due`.

    Raises
    ------
    MessageError
        `data` holds no messages, or a message is too large.
    """
    file, envelopes = BytesIO(data), []
    session = file.read(SESSION)
    if len(session) < SESSION:
        raise MessageError("is missing", field="session", sender=sender)
    frames = _frames(file, len(data), sender)
    while (one := read_envelope(frames, settings, sender, due)) is not None:
        envelopes.append(one)
    return session, envelopes


def _frames(file: BytesIO, end: int, sender: str) -> Iterator[bytes]:
    while file.tell() < end:
        try:
            yield read_block(file, end)
        except ConnectionError as error:
            raise MessageError(str(error), field="frame", sender=sender) from error
