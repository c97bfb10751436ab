"""Keeps what a client sent of the current release, so that it can send it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.kept_file import KeptFile

#: By stage: a digest of the request, and the values sent.
Sent = Mapping[str, tuple[str, Tensor]]


class Uploads:
    """The uploads of one client's last session. A file keeps them, so that a restart
    changes no byte; without a folder they stay in memory.
    """

    def __init__(self, folder: str, number: int):
        self._number = number
        self._session, self._sent = b"", dict[str, tuple[str, Tensor]]()
        self._file: KeptFile | None = None
        if folder:
            name = f"client_{number:04d}.upload"
            self._file = KeptFile(folder, name, "dp.ledger", number)
            self._load(self._file)

    def of(self, session: bytes) -> Sent:
        """The uploads of a session; empty if the session is new."""
        return self._sent if session == self._session else {}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Charge and `keep` within: no other process of the client does so meanwhile.

        Raises
        ------
        ConfigError
            Another process has noted an upload.
        """
        if self._file is None:
            yield
            return
        with self._file.alone():
            yield

    def keep(self, session: bytes, sent: Sent) -> None:
        """Note an upload before it is sent.

        Raises
        ------
        ConfigError
            The note cannot be written, or another process has noted an upload.
        """
        if self._file is not None:
            tensors = wire.under("values", {s: v for s, (_, v) in sent.items()})
            marker = torch.from_numpy(np.frombuffer(session, np.uint8).copy())
            numbers = {
                "client": self._number,
                "requests": {stage: asked for stage, (asked, _) in sent.items()},
            }
            tensors["session"] = marker
            sealed = wire.sealed(numbers, tensors)
            self._file.write(wire.pack("release upload", sealed, tensors))
        self._session, self._sent = session, dict(sent)

    def _load(self, file: KeptFile) -> None:
        whose = f"client {self._number}"
        try:
            data = file.read()
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
                f"{setting('dp.ledger')}: '{file.path}' cannot be used: {error}; "
                "remove it if no run is going on"
            ) from error
        self._session, self._sent = session.numpy().tobytes(), sent
