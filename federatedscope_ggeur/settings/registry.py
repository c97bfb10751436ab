"""Registries of parts by name: methods, closed forms, encoders, readers, splitters.

Parts of a user's plugin are recognised, and checked to fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from federatedscope_ggeur.errors import (
    ConfigError,
    PluginError,
    did_you_mean,
    setting,
    shown,
)

from .keys import Key, Rule
from .section import Section

Part = TypeVar("Part")


class Registry(Mapping[str, Part]):
    """The registered parts of one kind, in order of registration.

    Every part has its own settings in ``SETTINGS``, a tuple of `Key`. A part registers
    itself in the file that defines it. No other list names it.

    Parameters
    ----------
    kind : str
        The kind of the parts for messages, e.g. ``"method"``.
    field : str
        The setting that chooses a part, for messages, e.g. ``"base_method"``.
    taken : sequence of str
        Values of `field` that mean something else, so no part may have these names.
    removed : mapping of str to str
        The names of former parts, and what replaces each.
    has_sections : bool
        Whether the settings of a part are a `Section`, which the caller checks.
    """

    def __init__(
        self,
        kind: str,
        field: str,
        taken: tuple[str, ...] = (),
        removed: Mapping[str, str] | None = None,
        has_sections: bool = False,
    ):
        self._has_sections = has_sections
        self.kind, self.field, self.taken = kind, field, taken
        self._removed = dict(removed or {})
        # An expected part is None here until its module is imported.
        self._parts: dict[str, Part | None] = {}
        self._expected: dict[str, str] = {}

    def expect(self, modules: Mapping[str, str]) -> None:
        """Know the names of parts before their modules are imported.

        `modules` has the module that registers each part. It is imported when somebody
        asks for the part. The keys of the part's settings are known otherwise.
        """
        self._expected.update(modules)
        self._parts.update(dict.fromkeys(modules))

    def present(self) -> dict[str, Part]:
        """The parts whose modules are imported. This imports none."""
        return {name: part for name, part in self._parts.items() if part is not None}

    def is_expected(self, name: str) -> bool:
        """Whether the part called `name` is, or was, one of those of `expect`."""
        return name in self._expected

    def add(self, name: str, part: Part, before: str = "") -> Part:
        """Register `part` as `name`, `before` another part or as the last one.

        If the name is taken, raise `ValueError`.

        The same definition may run again, in a notebook or after a failed import. It
        then replaces the first one.
        """
        settings = () if self._has_sections else getattr(part, "SETTINGS", ())
        if not isinstance(settings, (tuple, list)) or not all(
            isinstance(key, Key) for key in settings
        ):
            raise TypeError(
                f"the {self.kind} '{name}' must have a tuple of Key as SETTINGS, such "
                "as (Key(...),)"
            )
        names = [key.name for key in settings]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise TypeError(
                f"the {self.kind} '{name}' has two settings called '{twice[0]}'; "
                "rename or remove one"
            )
        if is_of_plugin(part):
            _check_defaults(
                f"the {self.kind} '{name}'",
                settings,
                bool(getattr(part, "SECTION", "")),
            )
        clash = [one for one in names if _is_attribute(part, one)]
        if clash:
            raise TypeError(
                f"the {self.kind} '{name}' cannot have a setting called '{clash[0]}', "
                "because the class has an attribute or argument of that name; rename "
                "the setting"
            )
        if name in self.taken or not self._may_be(name, part):
            raise ValueError(f"the {self.kind} '{name}' is already registered")
        self._parts[name] = part
        if before:
            names = [other for other in self._parts if other != name]
            names.insert(names.index(before), name)
            self._parts = {one: self._parts[one] for one in names}
        part.name = name  # type: ignore[attr-defined]
        part.chosen_by = self.field  # type: ignore[attr-defined]
        return part

    def _may_be(self, name: str, part: Part) -> bool:
        """Whether nothing else is called `name`."""
        if name in self._expected:
            return getattr(part, "__module__", "") == self._expected[name]
        return _is_the_same(self._parts.get(name, part), part)

    def registered(self, name: str) -> Callable[[Part], Part]:
        """Decorator: register the decorated part as `name`."""
        return lambda part: self.add(name, part)

    def find(self, name: str) -> Part:
        """The part called `name`. If there is none, a `ConfigError` lists the known
        names."""
        if name not in self._parts:
            names = [*self.taken, *self._parts]
            problem = f"no {self.kind} is called {name!r}; known: {', '.join(names)}"
            problem += self.hint(name)
            raise ConfigError(f"{self.field}: {self.removed(name) or problem}")
        return self[name]

    def allowed(self, plugins: Collection[str]) -> list[Part]:
        """The package's own parts, and those of modules that a run's `plugins` name.

        A part is named by its module, or by a package that holds the module. Parts of
        plugins stand in the order of `plugins`, whichever was imported first.
        """

        def place(part: Part) -> int:
            return _place_in(plugins, part)

        parts = [
            part
            for part in self.values()
            if not is_of_plugin(part) or place(part) < len(plugins)
        ]
        of_plugins = iter(sorted(filter(is_of_plugin, parts), key=place))
        return [next(of_plugins) if is_of_plugin(part) else part for part in parts]

    def hint(self, name: object) -> str:
        """The end of a message that no part is called `name`."""
        near = did_you_mean(name, [*self.taken, *self])
        own = f"; if it is your own, name its module in {setting('plugins')}"
        return near or own

    def require_name(self, name: object) -> None:
        """Raise `TypeError` if a decorator got a part in place of the part's name."""
        if not isinstance(name, str):
            decorator = f"@register_{self.kind.replace(' ', '_')}"
            raise TypeError(
                f"{decorator} needs the name of the {self.kind}, as in "
                f'{decorator}("my_own")'
            )

    @property
    def rule(self) -> Rule:
        """The rule for the setting that chooses a part."""
        return _KnownName(self)

    def removed(self, name: object) -> str:
        """A message on what replaces the former part `name`; "" for any other name."""
        if not isinstance(name, str) or name in self or name not in self._removed:
            return ""
        return f"there is no {name} any more: {self._removed[name]}"

    def __getitem__(self, name: str) -> Part:
        if self._parts[name] is None:
            import_module(self._expected[name])
        part = self._parts[name]
        if part is None:  # its module does not register it
            raise KeyError(name)
        return part

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class _KnownName:
    """The rule that a value is the name of a part, including parts registered later."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def __call__(self, value: object) -> str:
        if value in self.choices:
            return ""
        known = f"must be one of {', '.join(self.choices)}; got {shown(value)}"
        return self._registry.removed(value) or known + self._registry.hint(value)

    @property
    def choices(self) -> tuple[str, ...]:
        return (*self._registry.taken, *self._registry)


def _is_attribute(part: object, name: str) -> bool:
    """Whether a setting called `name` would replace something else of a class.

    That is a function, or what a plugin's class inherits from this package. The package
    replaces attributes of its own by settings on purpose.
    """
    if not isinstance(part, type):
        return False
    if name == "self" or callable(getattr(part, name, 0)):
        return True
    bases = [base for base in part.__mro__ if not is_of_plugin(base)]
    inherited = {key.name for base in bases for key in getattr(base, "SETTINGS", ())}
    return (
        is_of_plugin(part)
        and name not in inherited
        and any(hasattr(base, name) for base in bases)
    )


def _is_the_same(one: object, other: object) -> bool:
    """Whether two parts have the same name and come from the same module."""
    where = [(p.__module__, getattr(p, "__qualname__", p)) for p in (one, other)]
    return where[0] == where[1]


def import_modules(package: str, folder: Iterable[str]) -> None:
    """Import all modules in a package's `folder`, in order of name.

    Each module registers its parts when it is imported.
    """
    for name in sorted(module.name for module in iter_modules(folder)):
        import_module(f"{package}.{name}")


#: The entry points under which an installed package names its plugins.
ENTRY_POINTS = "federatedscope_ggeur.plugins"
_PACKAGE = __name__.partition(".")[0]


def is_of_plugin(part: object) -> bool:
    """Whether a class or a function belongs to a user and not to this package."""
    return getattr(part, "__module__", "").partition(".")[0] != _PACKAGE


def _place_in(plugins: Collection[str], part: object) -> int:
    """The index of the plugin that holds a part; ``len(plugins)`` if none does."""
    module = f"{getattr(part, '__module__', '')}."
    named = (i for i, one in enumerate(plugins) if module.startswith(f"{one}."))
    return next(named, len(plugins))


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


def check_section(what: str, name: str, own: object) -> None:
    """Check the settings of the part `what`, which is called `name`.

    Raises
    ------
    TypeError
        They are no `Section`, or a plugin's with another prefix than ``"<name>."`` or a
        default that its rule refuses.
    """
    check_class(f"SETTINGS of {what}", own, Section)
    if is_of_plugin(own) and f"{name}." != own.PREFIX:  # type: ignore[attr-defined]
        raise TypeError(f"SETTINGS of {what} must have PREFIX = '{name}.'")
    if is_of_plugin(own):
        _check_defaults(what, own.declared(), False)  # type: ignore[attr-defined]


def _check_defaults(what: str, settings: Iterable[Key], may_lack: bool) -> None:
    """Check that the rule of each of a part's settings allows the default.

    With `may_lack` a setting may have none. Rules of this package's own settings are
    not asked here, because some import much.

    Raises
    ------
    TypeError
        A default is wrong or missing.
    """
    for key in settings:
        if may_lack and key.in_config is None:
            continue
        if problem := key.rule(key.in_config):
            raise TypeError(
                f"{what}: the default of its setting '{key.name}' {problem}"
            )


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
    signature = inspect.signature(function)
    try:
        signature.bind(*takes, **dict.fromkeys(by_name))
    except TypeError as error:
        raise TypeError(f"{wanted}, but takes {_arguments(signature)}") from error


def check_returned(what: str, part: object, returned: object, wanted: type) -> None:
    """Check that a part returned a value of the type `wanted`.

    Raises
    ------
    PluginError
        The value `returned` has another type.
    """
    if not isinstance(returned, wanted):
        raise PluginError(
            f"{what}{where_of(part)} must return {_a(wanted.__name__)}, but returned "
            f"{kind_of(returned)}"
        )


def kind_of(value: object) -> str:
    """The type of a value with its article, for a message, such as "an int"."""
    return "None" if value is None else _a(type(value).__name__)


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _plain(function: object) -> Callable | None:
    """The function inside a method, class method or static method; None for other
    values."""
    inner = getattr(function, "__func__", function)
    return inner if inspect.isfunction(inner) else None


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
    signature = inspect.signature(getattr(part, name))
    try:
        signature.bind(*[None] * given, **settings)
    except TypeError as error:
        raise TypeError(
            f"{part.__name__}.{name} takes {_arguments(signature)}, but is called with "
            f"{_arguments(wanted)}"
        ) from error


def _arguments(signature: inspect.Signature) -> str:
    names = [str(p).partition(":")[0].strip() for p in signature.parameters.values()]
    return f"({', '.join(names)})"


_Function = TypeVar("_Function", bound=Callable)


def registered(
    registry: Registry,
    name: str,
    settings: Sequence[Key],
    takes: Sequence[str],
    by_name: bool = True,
    **flags: Any,
) -> Callable[[_Function], _Function]:
    """Decorator: register the function as `name` in `registry`.

    The function gets attributes: ``name``, ``SETTINGS``, ``meaning`` (the first line of
    its docstring), and those in `flags`.

    Raises
    ------
    TypeError
        The function does not have the arguments `takes`. Or, with `by_name`, it does
        not take its settings as keywords.
    """
    registry.require_name(name)
    own = [key.name for key in settings] if by_name else []

    def register(function: _Function) -> _Function:
        check_function(f"the {registry.kind} '{name}'", function, takes, own)
        meaning = (inspect.getdoc(function) or name).partition("\n")[0]
        marks = {"name": name, "SETTINGS": tuple(settings), "meaning": meaning, **flags}
        vars(function).update(marks)
        return registry.add(name, function)

    return register


def filled_in(part: Any, options: Mapping[str, object]) -> dict[str, Any]:
    """A part's own settings: `options`, and the defaults for all others."""
    missing = [key for key in part.SETTINGS if key.name not in options]
    return {**{key.name: key.default for key in missing}, **options}
