"""The messages by which clients try all kappas and then make their own heads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.models.closed_forms.personal import KAPPAS

from ..closed_form.leave_one_out import take_losses

#: The temperatures tried for each kappa, as multiples of the one-shot head's.
FACTORS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class PersonalQuery:
    """Round 0, server to client: the LDA settings of clients' own heads.

    Attributes
    ----------
    shrinkage : float
    standardize : bool
    temperature : float
        The one-shot head's temperature; if `kappa` is chosen, the own head's.
    kappa : int
        The index of the chosen kappa; -1 while the client tries all of them.
    """

    shrinkage: float
    standardize: bool
    temperature: float
    kappa: int = -1

    def to_bytes(self) -> bytes:
        numbers = {
            "shrinkage": self.shrinkage,
            "standardize": int(self.standardize),
            "temperature": self.temperature,
            "kappa": self.kappa + 1,
        }
        return wire.pack("personal_query", numbers, {})

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> PersonalQuery:
        message = wire.unpack(data, "personal_query", sender)
        message.only(())
        shrinkage = message.number("shrinkage", 1.0)
        temperature = message.number("temperature")
        if shrinkage < 0 or temperature <= 0:
            raise message.refuse(
                "shrinkage",
                "the shrinkage must lie in 0..1, and the temperature must be positive",
            )
        kappa = message.integer("kappa")
        if kappa > len(KAPPAS):
            raise message.refuse("kappa", f"expected one of the {len(KAPPAS)} kappas")
        standardize = bool(message.integer("standardize"))
        return cls(shrinkage, standardize, temperature, kappa - 1)


@dataclass(frozen=True)
class PersonalLosses:
    """Round 0, client to server: the rounded log-loss for each kappa and temperature.

    Attributes
    ----------
    client : int
    rows : int
        The number of left-out rows; 0 if there are fewer than
        ``ggeur.privacy.min_samples``.
    losses : Tensor of shape (kappas, FACTORS), int64
        Sums over the left-out rows, in 1/64 nat.
    """

    client: int
    rows: int
    losses: Tensor

    def to_bytes(self) -> bytes:
        numbers = {"client": self.client, "rows": self.rows}
        return wire.pack("personal_losses", numbers, {"losses": self.losses})

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> PersonalLosses:
        message = wire.unpack(data, "personal_losses", sender)
        shape = len(KAPPAS), len(FACTORS)
        return cls(message.client(), *take_losses(message, shape))


@dataclass(frozen=True)
class PersonalScore:
    """Round 0, client to server: the scores of the client's own head on test rows.

    Attributes
    ----------
    client : int
    correct, total : int
        Hits and test rows; both are 0 for a client without its own head.
    recall : float
        The mean over classes of the share of correctly classified rows.
    """

    client: int
    correct: int
    total: int
    recall: float

    def to_bytes(self) -> bytes:
        return wire.pack("personal_score", dict(vars(self)), {})

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> PersonalScore:
        message = wire.unpack(data, "personal_score", sender)
        message.only(())
        correct, total = message.integer("correct"), message.integer("total")
        if correct > total:
            raise message.refuse(
                "correct", f"{correct} hits on {total} rows; hits cannot exceed rows"
            )
        recall = message.number("recall", 1.0)
        return cls(message.client(), correct, total, recall)
