"""What a setting is, and how parts that bring settings are registered."""

from federatedscope_ggeur.settings.key import Key
from federatedscope_ggeur.settings.registry import Registry
from federatedscope_ggeur.settings.rules import (
    NOT_SET,
    Rule,
    below,
    fraction,
    is_number,
    names,
    not_negative,
    one_of,
    positive,
    steps,
    text,
    whole,
)

__all__ = [
    "NOT_SET",
    "Key",
    "Registry",
    "Rule",
    "below",
    "fraction",
    "is_number",
    "names",
    "not_negative",
    "one_of",
    "positive",
    "steps",
    "text",
    "whole",
]
