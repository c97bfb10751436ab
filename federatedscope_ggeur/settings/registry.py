"""Registries of parts by name: methods, closed forms, encoders, readers, splitters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from federatedscope_ggeur.errors import ConfigError, did_you_mean

from .key import Key
from .rules import Rule, one_of

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
    """

    def __init__(
        self,
        kind: str,
        field: str,
        taken: tuple[str, ...] = (),
        removed: Mapping[str, str] | None = None,
    ):
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
        settings = getattr(part, "SETTINGS", ())
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
        hooks = [name for name in names if callable(getattr(part, name, 0))]
        if hooks:
            raise TypeError(
                f"the {self.kind} '{name}' has a setting and a function called "
                f"'{hooks[0]}'; rename the setting"
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
            problem += did_you_mean(name, names)
            raise ConfigError(f"{self.field}: {self.removed(name) or problem}")
        return self[name]

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
        return self._registry.removed(value) or one_of(*self.choices)(value)

    @property
    def choices(self) -> tuple[str, ...]:
        return (*self._registry.taken, *self._registry)


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
