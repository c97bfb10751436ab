"""Turn dataclasses into plain JSON values and back, with checks in both directions."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Literal,
    Optional,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from federatedscope_ggeur.errors import DataError, shown

#: Limits of whole numbers, of their digits, and of nested sections. No run comes near.
_LARGEST = 2**63 - 1
_DIGITS, _DEEPEST = len(str(-_LARGEST)), 50
#: Ranges of a schema's numbers: ``Annotated[float, (low, high)]``. Readers add these
#: numbers up and square them, so they must not be huge.
Share = Annotated[float, (0.0, 1.0)]
Seconds = Annotated[float, (0.0, 1e15)]


def as_json_value(value: Any, where: str, ordered: bool = True) -> Any:
    """`value` as dicts, lists and plain numbers.

    Fields keep the order of their dataclass. Fields with ``compare=False`` are left
    out. If `ordered`, the keys of a dict are sorted. Keys that are numbers as text are
    sorted by value ("2" before "10").

    Raises
    ------
    DataError
        A value has another type, or is not finite. The message names `where` and the
        path.
    """
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.compare]
        return {
            n: as_json_value(getattr(value, n), f"{where}.{n}", ordered) for n in names
        }
    if isinstance(value, dict):
        for key in value:
            _require(isinstance(key, str), where, f"a key is {key!r}, not text")
        keys = sorted(value, key=_by_number_then_text) if ordered else value
        return {
            key: as_json_value(value[key], f"{where}.{key}", ordered) for key in keys
        }
    if isinstance(value, (list, tuple)):
        return [
            as_json_value(item, f"{where}[{i}]", ordered)
            for i, item in enumerate(value)
        ]
    if isinstance(value, float):
        _require(math.isfinite(value), where, f"{value} is not a finite number")
    elif not (value is None or isinstance(value, (bool, int, str))):
        raise DataError(
            f"{where}: a value of type {type(value).__name__} is not plain; "
            f"convert it to a Python number, text, list or dict first"
        )
    return value


def json_text(value: Any) -> str:
    """The text of a file that holds the plain `value`."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def parse_json(text: str) -> Any:
    """Read strict JSON. Numbers of thousands of digits are refused.

    Raises
    ------
    DataError
        The text is not JSON, is nested too deeply, or holds NaN or such a number.
    """
    try:
        return json.loads(text, parse_constant=_constant, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise DataError(
            f"the text is not JSON ({error}); is the file whole?"
        ) from error
    except RecursionError:
        raise DataError("the JSON is nested too deeply; the file was changed") from None


def _constant(name: str) -> Any:
    raise DataError(f"{name} is not JSON; the file was changed")


def _whole(digits: str) -> int:
    # The time to read digits grows with their square.
    if len(digits) > _DIGITS:
        raise DataError(f"a number has {len(digits)} digits; the file was changed")
    return int(digits)


def from_json_value(hint: Any, value: Any, where: str) -> Any:
    """Turn a value that was read from JSON into the type that `hint` describes.

    Raises
    ------
    DataError
        A field is missing, unknown or of another type. The message names its path.
    """
    try:
        return _reader(hint)(value)
    except _Wrong as wrong:
        path = "".join(reversed(wrong.path))
        raise DataError(f"{where}{path}: {wrong.problem}") from None


class _Wrong(Exception):
    """A value is wrong. `path` leads to the value, its last step first."""

    def __init__(self, problem: str):
        super().__init__(problem)
        self.problem, self.path = problem, []


Reader = Callable[[Any], Any]


# Made once for each type, because a long run has hundreds of thousands of values.
@cache
def _reader(hint: Any) -> Reader:
    """A function that turns a JSON value into the type `hint`, or raises `_Wrong`."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return _anything
    if hint in (int, float):
        return partial(_number, hint, None)
    if origin is Annotated:
        return partial(_number, *args)
    if origin is Union:
        read = _reader(args[0])
        return lambda value: None if value is None else read(value)
    if origin is Literal:
        return partial(_literal, args)
    if origin is list:
        return partial(_list, _reader(args[0]), args[0] is int)
    if origin is dict:
        return partial(_dict, _reader(args[1]))
    if dataclasses.is_dataclass(hint):
        types = get_type_hints(hint, include_extras=True)
        fields = [field for field in dataclasses.fields(hint) if field.compare]
        readers = {field.name: _reader(types[field.name]) for field in fields}
        # Files of an older schema lack some of the others.
        needed = [field.name for field in fields if not _has_default(field)]
        return partial(_object, hint, readers, needed)
    return lambda value: _of_type(value, hint)


def _anything(value: Any) -> Any:
    ahead = [(value, 0)]
    while ahead:
        one, depth = ahead.pop()
        if depth > _DEEPEST:
            raise _Wrong(f"the value has more than {_DEEPEST} nested levels")
        if isinstance(one, (dict, list)):
            inside = one.values() if isinstance(one, dict) else one
            ahead += [(child, depth + 1) for child in inside]
        elif isinstance(one, (int, float)):
            _check_number(one)
    return value


def _number(kind: type, limits: Optional[tuple[float, float]], value: Any) -> Any:
    _check_number(_of_type(value, *((int,) if kind is int else (int, float))))
    if limits is not None and not limits[0] <= value <= limits[1]:
        low, high = limits
        raise _Wrong(f"must lie in {low:g}..{high:g}, found {value!r}")
    return value


def _check_number(value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Wrong(f"{value} is not a finite number")
    elif not -_LARGEST <= value <= _LARGEST:
        raise _Wrong(f"{shown(value)} is larger than any number of a run")


def _literal(choices: tuple, value: Any) -> Any:
    # Types are compared, because True equals 1. A set cannot hold lists.
    if not any(value == c and type(value) is type(c) for c in choices):
        expected = ", ".join(map(repr, choices))
        raise _Wrong(f"expected one of {expected}, found {shown(value, 60)}")
    return value


def _at(step: str, read: Reader, value: Any) -> Any:
    """Return ``read(value)``. If it raises an error, add `step` to the error's path."""
    try:
        return read(value)
    except _Wrong as wrong:
        wrong.path.append(step)
        raise


def _list(read: Reader, is_whole: bool, value: Any) -> list:
    _of_type(value, list)
    # One check for the whole list is fast; a round may have thousands of clients.
    whole = is_whole and set(map(type, value)) == {int}
    if whole and min(value) >= -_LARGEST and max(value) <= _LARGEST:
        return value
    return [_at(f"[{i}]", read, item) for i, item in enumerate(value)]


def _dict(read: Reader, value: Any) -> dict:
    items = _of_type(value, dict).items()
    return {key: _at(f".{key}", read, item) for key, item in items}


def _object(
    cls: type, readers: dict[str, Reader], needed: list[str], value: Any
) -> Any:
    _of_type(value, dict)
    missing = [name for name in needed if name not in value]
    if missing:
        raise _Wrong(f"fields are missing: {', '.join(missing)}")
    unknown = [name for name in value if name not in readers]
    if unknown:
        raise _Wrong(f"unknown fields: {', '.join(unknown)}")
    return cls(**{n: _at(f".{n}", readers[n], held) for n, held in value.items()})


def _has_default(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _by_number_then_text(key: str) -> tuple:
    return (0, int(key), key) if key.isdecimal() else (1, 0, key)


def _of_type(value: Any, *kinds: type) -> Any:
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return value
    expected = " or ".join(kind.__name__ for kind in kinds)
    raise _Wrong(f"expected {expected}, found {shown(value, 60)}")


def _require(condition: bool, where: str, problem: str) -> None:
    if not condition:
        raise DataError(f"{where}: {problem}")
