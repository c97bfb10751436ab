"""Turn nested settings into dotted keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(
    content: Mapping, prefix: str = "", keep_empty: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield each dotted key with its value. Empty sections count only with
    `keep_empty`."""
    for key, value in content.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            yield from flatten(value, f"{prefix}{key}.", keep_empty)
        else:
            yield f"{prefix}{key}", value
