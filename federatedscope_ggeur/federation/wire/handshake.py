"""A client's first message: its number, and the facts that all sides must share."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from federatedscope_ggeur.data.rows import NOT_KNOWN, Given

from .. import wire
from .schema import Declared


def _names_problem(names: tuple[str, ...]) -> str:
    return "" if names else "must name at least one class"


class Handshake(wire.Fields):
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

    class_names: tuple[str, ...] = wire.texts(problem=_names_problem)
    dim: int = wire.integer(least=1)
    encoder: str = wire.text()
    settings: Mapping[str, str] = wire.mapping()
    text: str = wire.text(default="", optional=True)

    @property
    def given(self) -> Given:
        """How the clients' rows were given, which they do not tell."""
        return NOT_KNOWN

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
                problem += "; where rows lack classes, class_names.txt names them all"
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


class Join(wire.Payload, kind="join"):
    """The message by which a client joins, before round 0.

    Attributes
    ----------
    handshake : Handshake
    declared : Declared
        The numbers of rows and the norm that limit the client's later messages.
    client : int
        The client's data index, from 1.
    domain : str
    """

    handshake: Handshake = wire.nested(Handshake)
    declared: Declared = wire.nested(Declared)
    client: int = wire.client()
    domain: str = wire.text()


def _short(value: object) -> str:
    return "not set" if value is None else f"{value!r:.100}"
