"""A client's first message: its number, and the facts that all sides must share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field

from federatedscope_ggeur.data.rows import NOT_KNOWN, Given

from .. import wire
from .schema import Declared


@dataclass(frozen=True)
class Handshake:
    """The facts that must be equal on all sides of a federation.

    Errors name the fields that differ.

    Attributes
    ----------
    class_names : tuple of str
    dim : int
        The dimension of the embeddings.
    encoder : str
        The model that made the embeddings.
    settings : mapping from key to value, as text
    text : str
        The key of the text features of the classes; "" if the run uses none.
    """

    class_names: tuple[str, ...]
    dim: int
    encoder: str
    settings: Mapping[str, str]
    text: str = ""

    @property
    def given(self) -> Given:
        """How the clients' rows were given, which they do not tell."""
        return NOT_KNOWN

    def numbers(self) -> dict:
        """The fields as plain values for a message's header."""
        numbers = {**asdict(self), "class_names": list(self.class_names)}
        if not self.text:
            del numbers["text"]
        return numbers

    @classmethod
    def of_message(cls, message: wire.Message) -> Handshake:
        """Read the fields that `numbers` wrote; raise `MessageError` if one lacks."""
        names = message.texts("class_names")
        if not names:
            raise message.refuse("class_names", "must name at least one class")
        return cls(
            names,
            message.integer("dim", 1),
            message.text("encoder"),
            message.mapping("settings"),
            message.text("text") if message.says("text") else "",
        )

    def difference(self, other: Handshake, but: Collection[str] = ()) -> str:
        """The first field in which `other` differs, with both values; "" if none does.

        Differences in the settings named by `but` are ignored.
        """
        mine, theirs = self._values(), other._values()
        for name in {**mine, **theirs}:
            here, there = mine.get(name), theirs.get(name)
            if here == there or name in but:
                continue
            problem = f"{name} is {_short(there)} there and {_short(here)} here"
            sizes = len(other.class_names), len(self.class_names)
            if name.startswith("class_names") and sizes[0] != sizes[1]:
                problem += f"; {sizes[0]} classes there and {sizes[1]} here"
            return problem
        return ""

    def _values(self) -> dict[str, object]:
        """The values to compare, by the name that an error shows."""
        names = enumerate(self.class_names)
        classes = {f"class_names: class {label}": name for label, name in names}
        rest: dict[str, object] = {"dim": self.dim, "encoder": self.encoder}
        if self.text:
            rest["text features"] = self.text
        return {**classes, **rest, **dict(sorted(self.settings.items()))}


@dataclass(frozen=True)
class Join:
    """The message by which a client joins, before round 0.

    Attributes
    ----------
    client : int
        The client's data index, from 1.
    domain : str
    handshake : Handshake
    declared : Declared
        The numbers of rows and the norm that limit the client's later messages.
    """

    client: int
    domain: str
    handshake: Handshake
    declared: Declared = field(default_factory=Declared)

    def to_bytes(self) -> bytes:
        own = {"client": self.client, "domain": self.domain}
        numbers = {**self.handshake.numbers(), **self.declared.numbers(), **own}
        return wire.pack("join", numbers, {})

    @classmethod
    def from_bytes(cls, data: bytes, sender: str) -> Join:
        message = wire.unpack(data, "join", sender)
        message.only(())
        handshake = Handshake.of_message(message)
        declared = Declared.of_message(message)
        return cls(message.client(), message.text("domain"), handshake, declared)


def _short(value: object) -> str:
    return "not set" if value is None else f"{value!r:.100}"
