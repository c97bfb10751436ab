"""The first message of a client: who it is, and what it must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from federatedscope_ggeur.federation import wire


@dataclass(frozen=True)
class Agreement:
    """What all sides of a federation must have alike; keys are named in errors.

    Attributes
    ----------
    class_names : tuple of str
    dim : int
        Of the embeddings.
    encoder : str
        What made them.
    settings : mapping from key to value, as text
    """

    class_names: tuple[str, ...]
    dim: int
    encoder: str
    settings: Mapping[str, str]

    def difference(self, other: Agreement) -> str:
        """Where `other` differs, with both values; "" where it does not."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine == theirs:
                continue
            name = field.name
            if isinstance(mine, Mapping):
                keys = sorted(mine.keys() | theirs.keys())
                name = next(k for k in keys if mine.get(k) != theirs.get(k))
                mine, theirs = mine.get(name), theirs.get(name)
            return f"{name} is {_short(theirs)} there and {_short(mine)} here"
        return ""


@dataclass(frozen=True)
class Join:
    """Before round 0, up.

    Attributes
    ----------
    client : int
        Its data index, from 1.
    domain : str
    agreement : Agreement
    """

    client: int
    domain: str
    agreement: Agreement

    def to_bytes(self) -> bytes:
        agreement = asdict(self.agreement)
        agreement["class_names"] = list(self.agreement.class_names)
        numbers = {"client": self.client, "domain": self.domain, **agreement}
        return wire.pack("join", numbers, {})

    @classmethod
    def from_bytes(cls, data: bytes, sender: str) -> Join:
        message = wire.unpack(data, "join", sender)
        names = message.texts("class_names")
        if not names:
            raise message.refuse("class_names", "names no class")
        agreement = Agreement(
            names,
            message.integer("dim", 1),
            message.text("encoder"),
            message.mapping("settings"),
        )
        return cls(message.client(), message.text("domain"), agreement)


def _short(value: object) -> str:
    if not isinstance(value, tuple):
        return repr(value)[:200]
    return f"{len(value)} names, {', '.join(value)}"[:200]
