"""Converts our bytes to the content of a Flower message, and back."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

_BYTES, _REASON = "ggeur.bytes", "ggeur.reason"


def content_of(data: bytes) -> RecordDict:
    """Make a message's content. Flower sends arrays in pieces, so it may be long."""
    array = Array(dtype="uint8", shape=(len(data),), stype=_BYTES, data=data)
    return RecordDict({_BYTES: ArrayRecord({_BYTES: array})})


def problem_of(reason: str) -> RecordDict:
    """Make the content of a reply that says why it carries no bytes."""
    return RecordDict({_REASON: ConfigRecord({_REASON: reason})})


def read_content(content: RecordDict) -> bytes:
    """Read the bytes in a message's content.

    Raises
    ------
    ConnectionError
        The content has no bytes; the error says why.
    """
    if _REASON in content.config_records:
        reason = content.config_records[_REASON].get(_REASON)
        raise ConnectionError(str(reason)[:500])
    try:
        return content.array_records[_BYTES][_BYTES].data
    except KeyError:
        raise ConnectionError(
            "the reply does not come from this package's ClientApp"
        ) from None
