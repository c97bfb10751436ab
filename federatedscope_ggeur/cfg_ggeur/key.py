"""What a `ggeur.*` key is."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.cfg_ggeur.rules import Rule


@dataclass(frozen=True)
class Key:
    """One `ggeur.*` key; `name` is without the prefix."""

    name: str
    default: object
    meaning: str
    rule: Rule
