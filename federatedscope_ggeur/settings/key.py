"""The definition of one setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .rules import Rule


@dataclass(frozen=True)
class Key:
    """One setting of a run, or of a part of the run.

    Attributes
    ----------
    name : str
        For a part's own setting, its name within the part: ``"mu"`` of MOON is the YAML
        key ``ggeur.moon.mu``. For a setting of the run, the YAML key without
        ``ggeur.``.
    default : object
        Write a whole number as a float. If the default is an int, FederatedScope cuts
        2.5 to 2 before any check can see it. None means an optional key in a section
        that takes new keys; if the key is missing, the part decides.
    meaning : str
        What the setting does, for a person, in a line or two.
    rule : Rule
    shared : bool
        Whether every process of a federation must have the same value. A part's own
        settings must always be the same.
    prepares_rows : bool
        Whether rows are prepared by it, so that a head needs to know its value.
    in_site_folder : bool
        Whether the value names a folder that each site keeps. A relative path lies in
        the site's own folder.
    """

    name: str
    default: object
    meaning: str
    rule: Rule
    shared: bool = False
    prepares_rows: bool = False
    in_site_folder: bool = False

    def read(self, value: object) -> object:
        """Convert a config's value for the part that uses it.

        A whole number becomes an int. -1 becomes None, if it means not set. A value
        that the rule refuses stays as it is.
        """
        read = getattr(self.rule, "read", None)
        return value if read is None or self.rule(value) else read(value)


def alike(
    default: object, rule: Rule, prefix: str = "", **meanings: str
) -> Iterator[Key]:
    """Yield keys that share a default and a rule, each with its own meaning."""
    for name, meaning in meanings.items():
        yield Key(prefix + name, default, meaning, rule)


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
