"""What a server tells a site that asks before it joins, and what differs there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.federation.wire.packing import VERSION
from federatedscope_ggeur.version import __version__

#: The fields of a handshake that the data decide; the others are settings.
DATA_FIELDS = ("class_names", "dim", "encoder", "text")


@dataclass(frozen=True)
class Facts:
    """What a server knows before the run, or in it.

    Attributes
    ----------
    package : str
        The version of this package there.
    messages : int
        The version of its messages.
    is_expected, is_taken, has_begun : bool
        Whether the federation has a client of the number that asks, whether it is
        there already, and whether the run has begun.
    agreed : mapping
        The fields of a `Handshake` that are settled.
    """

    package: str
    messages: int
    is_expected: bool
    is_taken: bool
    has_begun: bool
    agreed: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        return json.dumps({**vars(self), "agreed": dict(self.agreed)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Facts:
        """Raises `MessageError` if the server sent something else."""
        try:
            said = json.loads(data)
            agreed = dict(said["agreed"])
            found = cls(**{**said, "agreed": agreed})
            if "class_names" in agreed:
                agreed["class_names"] = tuple(map(str, agreed["class_names"]))
            agreed["settings"] = {
                str(k): str(v) for k, v in dict(agreed["settings"]).items()
            }
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MessageError(
                "not an answer of this program; run the same release everywhere",
                field="facts",
                sender="the server",
            ) from error
        return found

    def version_problem(self) -> str:
        """What is to be done if the server runs another release; "" if it does not."""
        if (self.package, self.messages) == (__version__, VERSION):
            return ""
        return (
            f"the server runs federatedscope-ggeur {self.package} (messages of version "
            f"{self.messages}), this site {__version__} (version {VERSION}): install "
            f"the same release everywhere, pip install "
            f"'federatedscope-ggeur=={self.package}'"
        )

    def differences(self, own: Handshake) -> Iterator[tuple[str, str]]:
        """Each field that is settled, and where `own` differs in it, "" for nowhere.

        In the texts "there" is the server, and "here" this site.
        """
        for name in (*DATA_FIELDS, "settings"):
            if name in self.agreed:
                theirs = replace(own, **{name: self.agreed[name]})
                yield name, own.difference(theirs)


def facts_of(members: Membership) -> Callable[[int, bool], bytes]:
    """What tells a client, by its number and whether it has joined, what is known."""

    def facts(number: int, is_taken: bool) -> bytes:
        is_expected = members.expects(number)
        return Facts(
            __version__, VERSION, is_expected, is_taken, members.started, members.agreed
        ).to_bytes()

    return facts
