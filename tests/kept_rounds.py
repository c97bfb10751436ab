"""The rounds that a checkpoint holds."""

from __future__ import annotations

import json
from pathlib import Path

from federatedscope_ggeur.federation import wire


def checkpoint_rounds(path: str | Path) -> int:
    """The number of finished rounds in the checkpoint at `path`."""
    message = wire.unpack(Path(path).read_bytes(), "checkpoint", str(path))
    return len(json.loads(message.text("records"))["rounds"])
