"""Members of a run that join as they should; what they say then is up to the test."""

from __future__ import annotations

from processes import PATIENCE, Stuck

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.transport import (
    Envelope,
    Link,
    Security,
    StreamEnded,
    TransportSettings,
)

#: Of the embeddings that the tests' workers read.
NAMES, DIM = tuple(str(label) for label in range(12)), 16
ENCODER = "unknown (precomputed embeddings)"


def handshake_of(quickstart, words) -> Handshake:
    """What the workers of a run with settings `words` have alike."""
    settings = agreed_settings(load_config(quickstart, list(words)))
    return Handshake(NAMES, DIM, ENCODER, settings)


class Member:
    """One client of a run, without a client's role."""

    def __init__(
        self,
        port: int,
        number: int,
        handshake: Handshake,
        domain="art",
        declared=None,
        token="",
    ):
        self.number = number
        join = Join(number, domain, handshake, declared or Declared())
        envelope = Envelope("join_in", 0, (join.to_bytes(),))
        security = Security(join_token=str(token))
        settings = TransportSettings(2**30, join_deadline=PATIENCE, security=security)
        self.link = Link(f"127.0.0.1:{port}", number, envelope, settings)

    def asked(self, kind: str) -> Envelope:
        """The next request, which must be of this kind."""
        envelope = self.link.receive(PATIENCE)
        assert envelope is not None, f"client {self.number} was not asked for {kind}"
        assert envelope.kind == kind
        return envelope

    def say(self, kind: str, state: int = 0, *parts: bytes) -> None:
        self.link.send(Envelope(kind, state, parts))

    def be_put_out(self, *junk) -> None:
        """Send what nobody asked for until the server has had enough."""
        for _ in range(3):
            self.say(*junk)
        assert "barred after 3 invalid messages" in self.end()

    def end(self) -> str:
        """How the server ends its stream."""
        try:
            while self.link.receive(PATIENCE) is not None:
                pass
        except StreamEnded as ended:
            return str(ended)
        finally:
            self.link.close(0.1)
        raise Stuck(f"nobody ended the stream of client {self.number}")
