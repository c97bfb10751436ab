"""Register a function as a reader, an encoder or a splitter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from federatedscope_ggeur.settings import Key, Registry, check_function

Function = TypeVar("Function", bound=Callable)


def registered(
    registry: Registry,
    name: str,
    settings: Sequence[Key],
    takes: Sequence[str],
    by_name: bool = True,
    **flags: Any,
) -> Callable[[Function], Function]:
    """Decorator: register the function as `name` in `registry`.

    The function gets attributes: ``name``, ``SETTINGS``, ``meaning`` (the first line of
    its docstring), and those in `flags`.

    Raises
    ------
    TypeError
        The function does not have the arguments `takes`. Or, with `by_name`, it does
        not take its settings as keywords.
    """
    own = [key.name for key in settings] if by_name else []

    def register(function: Function) -> Function:
        check_function(f"the {registry.kind} '{name}'", function, takes, own)
        meaning = (inspect.getdoc(function) or name).partition("\n")[0]
        found = {"name": name, "SETTINGS": tuple(settings), "meaning": meaning, **flags}
        vars(function).update(found)
        return registry.add(name, function)

    return register


def filled_in(part: Any, options: Mapping[str, object]) -> dict[str, Any]:
    """A part's own settings: `options`, and the defaults for all others."""
    missing = [key for key in part.SETTINGS if key.name not in options]
    return {**{key.name: key.read(key.default) for key in missing}, **options}
