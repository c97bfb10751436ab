"""Saves a client's vectors, so that a restarted client can send the same bytes.

The messages of a release without secure sums: one vector per client and stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.kept_file import KeptFile

#: For each stage: a digest of the request, and the values that the client sent.
Sent = Mapping[str, tuple[str, Tensor]]


class Uploads:
    """The uploads of a client's last session, in a file; in memory without a folder."""

    def __init__(self, folder: str, number: int):
        self._number = number
        self._session, self._sent = b"", dict[str, tuple[str, Tensor]]()
        name = f"client_{number:04d}.upload"
        self._file = KeptFile(folder, name, "dp.ledger", number)
        self._load()

    def of(self, session: bytes) -> Sent:
        """The uploads of a session; empty if the session is new."""
        return self._sent if session == self._session else {}

    def alone(self) -> AbstractContextManager[None]:
        """Lock the file, so that no other process charges or saves at the same time.

        Raises
        ------
        ConfigError
            Another process has saved an upload.
        """
        return self._file.alone()

    def keep(self, session: bytes, sent: Sent) -> None:
        """Save all uploads of the session, before the client sends the newest.

        Raises
        ------
        ConfigError
            The file cannot be written, or another process has saved an upload.
        """
        if self._file.is_kept:
            tensors = wire.under("values", {s: v for s, (_, v) in sent.items()})
            numbers = {
                "client": self._number,
                "requests": {stage: asked for stage, (asked, _) in sent.items()},
            }
            tensors["session"] = wire.as_bytes(session)
            sealed = wire.sealed(numbers, tensors)
            self._file.write(wire.pack("release upload", sealed, tensors))
        self._session, self._sent = session, dict(sent)

    def _load(self) -> None:
        whose = f"client {self._number}"
        try:
            data = self._file.read()
            if data is None:
                return
            message = wire.unpack(data, "release upload", whose)
            message.client()
            message.check_content()
            asked = message.mapping("requests")
            values = message.tensors_under("values")
            session = message.tensor("session", torch.uint8, (None,))
            sent = {stage: (asked[stage], values[stage]) for stage in values}
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{setting('dp.ledger')}: '{self._file.path}' cannot be used: {error}; "
                "delete it if no run is going on"
            ) from error
        self._session, self._sent = wire.of_bytes(session), sent


SESSION_BYTES = 16


class ReleaseRequest(wire.Payload, kind="release_request"):
    """Round 0, server to all clients: asks for the vectors of one stage.

    Attributes
    ----------
    session : bytes
    stage : {"moments", "spread"}
    centre : Tensor of shape (D,), float64
        In stage "spread" clients subtract it from their rows; in "moments" it is 0.
    """

    session: bytes = wire.octets(SESSION_BYTES)
    stage: str = wire.text()
    centre: Tensor = wire.tensor(torch.float64, ("dim",))


class ReleaseVector(wire.Payload, kind="release_vector"):
    """Round 0, client to server: the client's vector of one stage.

    Attributes
    ----------
    client : int
    session, stage : bytes, str
    values : Tensor of shape (P,), int64
        In steps of the grid; see `noisy_release`.
    """

    client: int = wire.client()
    session: bytes = wire.octets(SESSION_BYTES)
    stage: str = wire.text()
    values: Tensor = wire.tensor(torch.int64, (None,))
