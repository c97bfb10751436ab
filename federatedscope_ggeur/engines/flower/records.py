"""Converts our messages to the content of a Flower message, and back."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, RecordDict

from federatedscope_ggeur.errors import MessageError

from ..sites.content import UNLIMITED, packed, unpacked
from ..sites.transport import Envelope, TransportSettings

_OURS = "ggeur"


def content_of(envelopes: Sequence[Envelope]) -> RecordDict:
    """Make a message's content: one array of bytes, which Flower sends in pieces."""
    data = packed(envelopes, UNLIMITED)
    array = Array("uint8", (len(data),), f"{_OURS}.bytes", data)
    return RecordDict({_OURS: ArrayRecord({_OURS: array})})


def envelopes_of(content: RecordDict, sender: str, most: int) -> list[Envelope]:
    """Read the messages in a Flower message's content.

    Raises
    ------
    MessageError
        The content is not one of `content_of`, or a message has more than `most` bytes.
    """
    try:
        data = content.array_records[_OURS][_OURS].data
    except KeyError as error:
        problem = f"it has no {error}, so it is not of this app"
        raise MessageError(problem, field="content", sender=sender) from error
    return unpacked(data, TransportSettings(most), sender)
