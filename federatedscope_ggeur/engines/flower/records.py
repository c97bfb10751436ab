"""Converts our messages to the content of a Flower message, and back."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from federatedscope_ggeur.errors import MessageError

from ..sites.leading import FAILED
from ..sites.transport import Envelope

_BYTES = "ggeur.bytes"


def failed(reason: str) -> Envelope:
    """The message that says why its sender stops."""
    return Envelope(FAILED, 0, (reason.encode(),))


def content_of(envelopes: Sequence[Envelope]) -> RecordDict:
    """Make a message's content. Flower sends arrays in pieces, so parts may be long."""
    content = RecordDict()
    for position, one in enumerate(envelopes):
        content[f"{position}"] = ConfigRecord({"kind": one.kind, "state": one.state})
        content[f"{position}.parts"] = ArrayRecord(
            {
                str(i): Array("uint8", (len(part),), _BYTES, part)
                for i, part in enumerate(one.parts)
            }
        )
    return content


def envelopes_of(content: RecordDict, sender: str, most: int) -> list[Envelope]:
    """Read the messages in a Flower message's content.

    Raises
    ------
    MessageError
        The content is not one of `content_of`, or has more than `most` bytes.
    """
    about, arrays = content.config_records, content.array_records
    size = sum(len(a.data) for record in arrays.values() for a in record.values())
    if size > most:
        problem = f"{size} bytes, more than the limit of {most}"
        raise MessageError(problem, field="size", sender=sender)
    found = []
    try:
        for position in map(str, range(len(about))):
            kind, state = about[position]["kind"], about[position]["state"]
            if not isinstance(kind, str) or type(state) is not int or state < 0:
                raise MessageError("must be text", field="kind", sender=sender)
            parts = arrays[f"{position}.parts"]
            data = tuple(parts[str(i)].data for i in range(len(parts)))
            found.append(Envelope(kind, state, data))
    except KeyError as error:
        problem = f"it has no {error}, so it is not of this app"
        raise MessageError(problem, field="content", sender=sender) from error
    return found
