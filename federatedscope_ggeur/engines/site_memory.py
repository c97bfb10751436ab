"""What a site remembers between two messages, in files that only its owner can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from federatedscope_ggeur.federation.exchanges import RequestKind
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.transport import Envelope

Asked = list[tuple[RequestKind, tuple[bytes, ...]]]


class SiteMemory:
    """The requests that a site was asked in its present run, and facts of this run.

    Parameters
    ----------
    folder : path
        It must exist.

    Attributes
    ----------
    run : dict from str to value
        It is empty before the first run.
    """

    def __init__(self, folder: Path):
        self._folder, self._path = folder, folder / "run.json"
        self.run: dict[str, Any] = {}
        if self._path.exists():
            self.run = json.loads(self._path.read_text(encoding="utf-8"))

    def save(self, **facts: Any) -> None:
        """Change facts of the run."""
        self.run = {**self.run, **facts}
        write_atomically(self._path, json.dumps(self.run), mode=0o600)

    def keep(self, kind: RequestKind, asked: Envelope) -> None:
        """Keep a request, before it is answered.

        Of a kind that clients need not remember, only the last request is kept.
        """
        name = f"last_{kind.message}"
        if kind.remembered(asked.state):
            name = f"{len(list(self._folder.glob('[0-9]*.request'))):06d}"
        sizes = [len(part) for part in asked.parts]
        head = json.dumps([kind.message, sizes]).encode()
        data = b"\n".join([head, b"".join(asked.parts)])
        write_atomically(self._folder / f"{name}.request", data, mode=0o600)

    def asked(self, pattern: str) -> Asked:
        """The kept requests whose names fit a pattern, in order."""
        kinds = {kind.message: kind for kind in all_kinds()}
        found = []
        for path in sorted(self._folder.glob(f"{pattern}.request")):
            head, _, data = path.read_bytes().partition(b"\n")
            message, sizes = json.loads(head)
            parts, at = [], 0
            for size in sizes:
                parts.append(data[at : at + size])
                at += size
            found.append((kinds[message], tuple(parts)))
        return found

    def forget(self) -> None:
        """Forget all requests."""
        for path in self._folder.glob("*.request"):
            path.unlink()
