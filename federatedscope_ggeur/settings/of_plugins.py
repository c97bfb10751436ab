"""Parts of a user's plugin: recognise them, find their file, check that they fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from federatedscope_ggeur.errors import PluginError, did_you_mean

#: The entry points under which an installed package names its plugins.
ENTRY_POINTS = "federatedscope_ggeur.plugins"
_PACKAGE = __name__.partition(".")[0]


def is_of_plugin(part: object) -> bool:
    """Whether a class or a function belongs to a user and not to this package."""
    return getattr(part, "__module__", "").partition(".")[0] != _PACKAGE


def place_of(part: object) -> str:
    """File and line that define a class or a function, for a message; "" if unknown."""
    try:
        file = inspect.getsourcefile(part)  # type: ignore[arg-type]
        line = inspect.getsourcelines(part)[1]  # type: ignore[arg-type]
    except (TypeError, OSError):
        return ""
    return f"{file}, line {line}"


def where_of(part: object) -> str:
    """File and line of a part in brackets, to stand behind its name; "" if unknown."""
    place = place_of(part)
    return f" ({place})" if place else ""


def check_class(
    what: str, part: object, base: type, required: tuple[str, ...] = ()
) -> None:
    """Check that a part is a subclass of `base` and can be used as one.

    Parameters
    ----------
    what : str
        The name of the part, for messages.
    part : object
    base : type
    required : tuple of str
        The names that the part must define itself.

    Raises
    ------
    TypeError
        The part is no subclass, lacks a required name, takes other arguments than
        `base`, or only defines names that nothing calls.
    """
    if not (isinstance(part, type) and issubclass(part, base)):
        raise TypeError(f"{what} must be a subclass of {base.__name__}")
    if not is_of_plugin(part):
        return
    own = {
        name: function
        for name, function in vars(part).items()
        if not name.startswith("_") and _plain(function) is not None
    }
    _check_names(what, own, base)
    for name in required:
        if _plain(getattr(part, name)) is _plain(getattr(base, name)):
            raise TypeError(
                f"{what} must define {name}, because {base.__name__}.{name} is empty"
            )
    for name in own:
        if hasattr(base, name):
            _check_arguments(part, base, name)


def check_function(
    what: str, function: object, takes: Sequence[str], by_name: Sequence[str] = ()
) -> None:
    """Check that a part is a function of the arguments `takes` and the keywords
    `by_name`.

    Raises
    ------
    TypeError
        The part is no function, or takes other arguments.
    """
    wanted = f"{what} must be a function of ({', '.join([*takes, *by_name])})"
    if not callable(function):
        raise TypeError(wanted)
    found = inspect.signature(function)
    try:
        found.bind(*takes, **dict.fromkeys(by_name))
    except TypeError as error:
        raise TypeError(f"{wanted}, but takes {_arguments(found)}") from error


def check_returned(what: str, part: object, found: object, wanted: type) -> None:
    """Check that a part returned a value of the type `wanted`.

    Raises
    ------
    PluginError
        The value `found` has another type.
    """
    if not isinstance(found, wanted):
        raise PluginError(
            f"{what}{where_of(part)} must return {_a(wanted.__name__)}, but returned "
            f"{kind_of(found)}"
        )


def kind_of(value: object) -> str:
    """The type of a value with its article, for a message, such as "an int"."""
    return "None" if value is None else _a(type(value).__name__)


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _plain(function: object) -> Callable | None:
    """The function inside a method, class method or static method; None for other
    values."""
    found = getattr(function, "__func__", function)
    return found if inspect.isfunction(found) else None


def _check_names(what: str, own: Mapping[str, object], base: type) -> None:
    """Refuse a class that defines functions, but none that `base` has."""
    hooks = [name for name in dir(base) if not name.startswith("_")]
    if own and not own.keys() & set(hooks):
        name = next(iter(own))
        raise TypeError(
            f"{what} defines no function of {base.__name__}, and nothing calls "
            f"its {name}{did_you_mean(name, hooks)}"
        )


def _check_arguments(part: type, base: type, name: str) -> None:
    wanted = inspect.signature(getattr(base, name))
    kinds = [argument.kind for argument in wanted.parameters.values()]
    given = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    settings = {}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        settings = {key.name: None for key in part.SETTINGS}  # type: ignore[attr-defined]
    found = inspect.signature(getattr(part, name))
    try:
        found.bind(*[None] * given, **settings)
    except TypeError as error:
        raise TypeError(
            f"{part.__name__}.{name} takes {_arguments(found)}, but is called with "
            f"{_arguments(wanted)}"
        ) from error


def _arguments(signature: inspect.Signature) -> str:
    names = [str(p).partition(":")[0].strip() for p in signature.parameters.values()]
    return f"({', '.join(names)})"
