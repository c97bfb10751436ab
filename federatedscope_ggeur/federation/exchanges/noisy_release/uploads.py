"""Keeps what a client sent of the current release, so that it can send it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.files import write_atomically

#: By stage: a digest of the request, and the values sent.
Sent = Mapping[str, tuple[str, Tensor]]


class Uploads:
    """The uploads of one client's last session. A file keeps them, so that a restart
    changes no byte; without a folder they stay in memory.
    """

    def __init__(self, folder: str, number: int):
        self._number = number
        self._path = Path(folder) / f"client_{number:04d}.upload" if folder else None
        self._session, self._sent = b"", dict[str, tuple[str, Tensor]]()
        if self._path is not None and self._path.exists():
            self._load(self._path)

    def of(self, session: bytes) -> Sent:
        """The uploads of a session; empty if the session is new."""
        return self._sent if session == self._session else {}

    def keep(self, session: bytes, sent: Sent) -> None:
        """Note an upload before it is sent.

        Raises
        ------
        ConfigError
            The note cannot be written.
        """
        if self._path is not None:
            tensors = wire.under("values", {s: v for s, (_, v) in sent.items()})
            marker = torch.from_numpy(np.frombuffer(session, np.uint8).copy())
            numbers = {
                "client": self._number,
                "requests": {stage: asked for stage, (asked, _) in sent.items()},
            }
            tensors["session"] = marker
            data = wire.pack("release upload", wire.sealed(numbers, tensors), tensors)
            try:
                write_atomically(self._path, data, mode=0o600)
            except ConfigError as error:
                raise ConfigError(
                    f"{setting('dp.ledger')}: {error}; so nothing was sent, since "
                    "each upload is noted there first"
                ) from error
        self._session, self._sent = session, dict(sent)

    def _load(self, path: Path) -> None:
        whose = f"client {self._number}"
        try:
            message = wire.unpack(path.read_bytes(), "release upload", whose)
            message.client()
            message.check_content()
            asked = message.mapping("requests")
            values = message.tensors_under("values")
            session = message.tensor("session", torch.uint8, (None,))
            sent = {stage: (asked[stage], values[stage]) for stage in values}
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{setting('dp.ledger')}: '{path}' cannot be used: {error}; remove it "
                "if no run is going on"
            ) from error
        self._session, self._sent = session.numpy().tobytes(), sent
