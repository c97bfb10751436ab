"""What one setting is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from federatedscope_ggeur.settings.rules import Rule


@dataclass(frozen=True)
class Key:
    """One setting, of the run or of a part of it.

    Attributes
    ----------
    name : str
        Of a part's own setting, within the part: ``"mu"`` of MOON is the YAML key
        ``ggeur.moon.mu``. Of a run's, the YAML key without ``ggeur.``.
    default : object
        A whole number stands here as a float: FederatedScope cuts 2.5 to 2 for an int
        default before any check can see it. None: a section that takes new keys may
        have it, and without it the part decides.
    meaning : str
        For a person, in a line or two.
    rule : Rule
    shared : bool
        Every process of a federation must have it alike. A part's own settings must
        be so in any case.
    """

    name: str
    default: object
    meaning: str
    rule: Rule
    shared: bool = False

    def read(self, value: object) -> object:
        """A config's value as the part takes it: whole numbers as int, -1 (where it
        means not set) as None; what the rule refuses as it is."""
        read = getattr(self.rule, "read", None)
        return value if read is None or self.rule(value) else read(value)


def alike(
    default: object, rule: Rule, prefix: str = "", **meanings: str
) -> Iterator[Key]:
    """Keys of one default and rule, each with its meaning."""
    for name, meaning in meanings.items():
        yield Key(prefix + name, default, meaning, rule)
