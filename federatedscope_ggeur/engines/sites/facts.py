"""The facts that a server tells a site before it joins, and their comparison."""

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


def release_text(package: str = __version__, messages: int = VERSION) -> str:
    """A release of this package and the version of its messages, as a text."""
    return f"{package}, messages of version {messages}"


@dataclass(frozen=True)
class Facts:
    """The facts that a server tells one site.

    Attributes
    ----------
    package : str
        The version of this package on the server.
    messages : int
        The version of the server's messages.
    is_expected, is_taken, has_begun : bool
        Whether the federation has a client with the site's number, whether this client
        has joined already, and whether the run has begun.
    agreed : mapping
        The settled fields of the `Handshake`.
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
        """Read the server's message. Raises `MessageError` if it is invalid."""
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
        """A text that says what to do if the server runs another release; else ""."""
        theirs, own = release_text(self.package, self.messages), release_text()
        if theirs == own:
            return ""
        return (
            f"the server runs federatedscope-ggeur {theirs}; this site runs {own}; "
            "install the same release everywhere: pip install "
            f"'federatedscope-ggeur=={self.package}'"
        )

    def differences(self, own: Handshake) -> Iterator[tuple[str, str]]:
        """Compare each settled field with `own`; "" means no difference.

        It yields the field's name and a text. In the text "there" means the server, and
        "here" this site.
        """
        for name in (*DATA_FIELDS, "settings"):
            if name in self.agreed:
                theirs = replace(own, **{name: self.agreed[name]})
                yield name, own.difference(theirs)


def facts_of(members: Membership) -> Callable[[int, bool], bytes]:
    """Make the function that returns the server's `Facts`, as bytes, for a client.

    Its arguments are the client's number and whether the client has joined.
    """

    def facts(number: int, is_taken: bool) -> bytes:
        is_expected = members.expects(number)
        return Facts(
            __version__, VERSION, is_expected, is_taken, members.started, members.agreed
        ).to_bytes()

    return facts
