"""A server whose code is not ours, before one resident."""

from __future__ import annotations

from federatedscope_ggeur.engines.flower.carried import (
    NOBODY,
    SESSION,
    packed,
    unpacked,
)
from federatedscope_ggeur.engines.flower.resident import Resident
from federatedscope_ggeur.engines.leading import JOIN
from federatedscope_ggeur.transport import Envelope, TransportSettings

OURS, THEIRS = b"0123456789abcdef", b"fedcba9876543210"
LIMITS = TransportSettings(2**20)
SITE = [
    "federate.mode", "distributed",
    "distribute.role", "client",
    "distribute.data_idx", "2",
    "distribute.grpc_max_send_message_length", str(2**20),
]  # fmt: skip


class Hostile:
    """A server whose code is not ours, before one resident."""

    def __init__(self, resident: Resident):
        self.resident = resident

    def send(self, *asked: Envelope, session: bytes = NOBODY):
        """What the resident answers: its session, and messages."""
        answer = self.resident.answer(packed(session, asked, LIMITS))
        return unpacked(answer, LIMITS, "the resident")

    def join(self, run: bytes = OURS, server: bytes = bytes(SESSION)):
        session, (said,) = self.send(Envelope(JOIN, 0, (run, server)))
        return session, said

    def ask(self, kind: str, *parts: bytes) -> Envelope:
        """The answer to a question after a proper join."""
        session, _ = self.join()
        _, (said,) = self.send(Envelope(kind, 0, parts), session=session)
        return said
