"""The first message of a client: who it is, and what it must have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest

from federatedscope_ggeur.federation.messages import wire


@dataclass(frozen=True)
class Handshake:
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

    def numbers(self) -> dict:
        """The fields as plain values for a message's header."""
        return {**asdict(self), "class_names": list(self.class_names)}

    @classmethod
    def of_message(cls, message: wire.Message) -> Handshake:
        """What `numbers` put into a message; `MessageError` where it is not there."""
        names = message.texts("class_names")
        if not names:
            raise message.refuse("class_names", "names no class")
        return cls(
            names,
            message.integer("dim", 1),
            message.text("encoder"),
            message.mapping("settings"),
        )

    def difference(self, other: Handshake, but: Collection[str] = ()) -> str:
        """Where `other` differs, with both values; "" where it does not, or only in the
        settings `but`."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, Mapping):
                mine, theirs = _without(mine, but), _without(theirs, but)
            if mine == theirs:
                continue
            name = field.name
            if isinstance(mine, tuple):
                return _difference_of_names(mine, theirs)
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
    handshake : Handshake
    """

    client: int
    domain: str
    handshake: Handshake

    def to_bytes(self) -> bytes:
        own = {"client": self.client, "domain": self.domain}
        numbers = {**self.handshake.numbers(), **own}
        return wire.pack("join", numbers, {})

    @classmethod
    def from_bytes(cls, data: bytes, sender: str) -> Join:
        message = wire.unpack(data, "join", sender)
        handshake = Handshake.of_message(message)
        return cls(message.client(), message.text("domain"), handshake)


def _difference_of_names(mine: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    """The first class that differs, counted as labels are."""
    pairs = zip_longest(theirs, mine)
    label, pair = next((i, p) for i, p in enumerate(pairs) if p[0] != p[1])
    there, here = map(_short, pair)
    problem = f"class_names: class {label} is {there} there and {here} here"
    if len(mine) == len(theirs):
        return problem
    return f"{problem}; {len(theirs)} classes there and {len(mine)} here"


def _without(settings: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


def _short(value: object) -> str:
    return "not set" if value is None else f"{value!r:.100}"
