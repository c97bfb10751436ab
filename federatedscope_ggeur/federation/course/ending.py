"""The server's last message to each client, beside the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from federatedscope_ggeur.reporting import Final

from .. import wire

#: What `Final.head` and `Final.calibrated_by` may say; "" stands for None.
_HEADS = ("trained", "calibrated", "closed_form")
_CALIBRATED_BY = ("", "leave_one_out", "validation", "start")


@dataclass(frozen=True)
class Ending:
    """A message from server to client after the last round, about the final model.

    Attributes
    ----------
    head : {"trained", "calibrated", "closed_form"}
    calibrated_by : {"leave_one_out", "validation", "start"} or None
    accuracy : mapping from domain to float, or None
        The test accuracy of each scored domain; None if the server does not share it
        (``ggeur.share_results``).
    """

    head: Any
    calibrated_by: Any
    accuracy: Mapping[str, float] | None = None

    @classmethod
    def of(cls, final: Final, shares: bool) -> Ending:
        """Make the message from a run's score; `shares` adds accuracies by domain."""
        scored = {d: a for d, a in final.accuracy.items() if a is not None}
        return cls(final.head, final.calibrated_by, scored if shares else None)

    def to_bytes(self) -> bytes:
        numbers: dict[str, Any] = {
            "head": self.head,
            "calibrated_by": self.calibrated_by or "",
        }
        tensors = {}
        if self.accuracy is not None:
            numbers["domains"] = list(self.accuracy)
            shares = list(self.accuracy.values())
            tensors["accuracy"] = torch.tensor(shares, dtype=torch.float64)
        return wire.pack("ending", numbers, tensors)

    @classmethod
    def from_bytes(cls, data: bytes, sender: str = "the server") -> Ending:
        """Read the message. Raises `MessageError` if it is invalid."""
        message = wire.unpack(data, "ending", sender)
        head, by = message.text("head"), message.text("calibrated_by")
        if head not in _HEADS:
            raise message.refuse("head", f"expected one of {_HEADS}, got {head!r:.80}")
        if by not in _CALIBRATED_BY:
            problem = f"expected one of {_CALIBRATED_BY}, got {by!r:.80}"
            raise message.refuse("calibrated_by", problem)
        if not message.says("domains"):
            message.only(())
            return cls(head, by or None)
        message.only(("accuracy",))
        domains = message.texts("domains")
        shares = message.tensor("accuracy", torch.float64, (len(domains),))
        if ((shares < 0) | (shares > 1)).any():
            raise message.refuse("accuracy", "an accuracy must lie between 0 and 1")
        return cls(head, by or None, dict(zip(domains, shares.tolist())))
