"""Dataclasses to and from plain JSON values, checked on the way in both directions."""

import dataclasses
import math
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from federatedscope_ggeur.errors import DataError


def as_json_value(value: Any, where: str) -> Any:
    """`value` as dicts, lists and plain numbers, in an order that never varies.

    Fields keep the order of their dataclass, and those that do not compare are left
    out; the keys of a dict are sorted, numbers in text by their value ("2" before
    "10").

    Raises
    ------
    DataError
        If a value is none of these or not finite; `where` and its path are named.
    """
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.compare]
        return {
            name: as_json_value(getattr(value, name), f"{where}.{name}")
            for name in names
        }
    if isinstance(value, dict):
        for key in value:
            _require(isinstance(key, str), where, f"a key is {key!r}, not text")
        keys = sorted(value, key=_by_number_then_text)
        return {key: as_json_value(value[key], f"{where}.{key}") for key in keys}
    if isinstance(value, (list, tuple)):
        return [as_json_value(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float):
        _require(math.isfinite(value), where, f"{value} is not a finite number")
    elif not (value is None or isinstance(value, (bool, int, str))):
        raise DataError(
            f"{where}: {type(value).__name__} is not a plain value; "
            f"convert it to a Python number, text, list or dict first"
        )
    return value


def from_json_value(hint: Any, value: Any, where: str) -> Any:
    """`value`, as read from JSON, as the type that `hint` describes.

    Raises
    ------
    DataError
        If a field is missing, unknown or of another type; its path is named.
    """
    if hint is Any:
        return value
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union:
        return None if value is None else from_json_value(args[0], value, where)
    if origin is Literal:
        expected = f"expected one of {', '.join(map(repr, args))}"
        _require(value in args, where, f"{expected}, found {value!r:.60}")
        return value
    if origin is list:
        _require_type(value, list, where)
        items = enumerate(value)
        return [from_json_value(args[0], v, f"{where}[{i}]") for i, v in items]
    if origin is dict:
        _require_type(value, dict, where)
        items = value.items()
        return {k: from_json_value(args[1], v, f"{where}.{k}") for k, v in items}
    if dataclasses.is_dataclass(hint):
        return _object_from_json(hint, value, where)
    if hint is float:
        _require_type(value, (int, float), where)
        _require(math.isfinite(value), where, f"{value} is not a finite number")
    else:
        _require_type(value, hint, where)
    return value


def _object_from_json(cls: type, value: Any, where: str) -> Any:
    _require_type(value, dict, where)
    types = get_type_hints(cls)
    hints = {f.name: types[f.name] for f in dataclasses.fields(cls) if f.compare}
    missing = [name for name in hints if name not in value]
    unknown = [name for name in value if name not in hints]
    _require(not missing, where, f"fields are missing: {', '.join(missing)}")
    _require(not unknown, where, f"unknown fields: {', '.join(unknown)}")
    found = {
        name: from_json_value(hint, value[name], f"{where}.{name}")
        for name, hint in hints.items()
    }
    return cls(**found)


def _by_number_then_text(key: str) -> tuple:
    return (0, int(key), key) if key.isdecimal() else (1, 0, key)


def _require_type(value: Any, kinds: Any, where: str) -> None:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    expected = " or ".join(kind.__name__ for kind in kinds)
    right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    _require(right, where, f"expected {expected}, found {value!r:.60}")


def _require(condition: bool, where: str, problem: str) -> None:
    if not condition:
        raise DataError(f"{where}: {problem}")
