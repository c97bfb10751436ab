"""Settings of a run that are declared and read together.

A `Section` is a frozen dataclass. Each of its fields is declared by `key`, with type,
default, meaning and rule, and is read as an attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .keys import Key, Rule, one_of, text

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


S = TypeVar("S", bound="Section")


#: The rule of a setting that names none, by the type of its default.
_RULES: dict[type, Rule] = {bool: one_of(True, False), str: text}


def key(
    default: object,
    meaning: str,
    rule: Rule | None = None,
    name: str = "",
    **flags: bool,
) -> Any:
    """Declare a setting as a field of a `Section`.

    Parameters
    ----------
    default, meaning, rule
        As in `Key`. A truth value or a text needs no rule.
    name : str
        The setting's name below the section's `PREFIX`, if it is not the field's name.
    **flags : bool
        Further attributes of `Key`, such as ``shared``.
    """
    rule = rule or _RULES.get(type(default))
    if rule is None:
        raise TypeError(f"the setting with the default {default!r} needs a rule")
    made = Key(name, default, meaning, rule, **flags)
    return field(default=made.default, metadata={"key": made})


@dataclass_transform(frozen_default=True, field_specifiers=(field, key))
@dataclass(frozen=True)
class Section:
    """Settings of a run that are read together. A subclass is a frozen dataclass.

    Attributes
    ----------
    PREFIX : str
        What stands before each name: a setting's key is ``ggeur.<PREFIX><name>``.
    """

    PREFIX: ClassVar[str] = ""

    def __init_subclass__(cls):
        dataclass(frozen=True)(cls)

    @classmethod
    @cache
    def by_field(cls) -> dict[str, Key]:
        """The keys by fields, each with its full name below ``ggeur``."""
        made = {one.name: one.metadata["key"] for one in fields(cls) if one.metadata}
        return {
            name: replace(key, name=cls.PREFIX + (key.name or name))
            for name, key in made.items()
        }

    @classmethod
    def declared(cls) -> tuple[Key, ...]:
        """The keys in their order."""
        return tuple(cls.by_field().values())

    @classmethod
    def read(cls: type[S], value_of: Callable[[Key], Any], **more: Any) -> S:
        """Make the section from the value of each key, as its part reads it.

        `more` has the fields that are no keys.
        """
        return cls(**{n: value_of(key) for n, key in cls.by_field().items()}, **more)

    @classmethod
    def of(cls: type[S], chosen: Mapping[str, Any], **more: Any) -> S:
        """Make the section from the settings of a run, see `Demands.chosen`."""
        return cls.read(lambda key: chosen[key.field], **more)
