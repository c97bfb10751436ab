"""Parts of one kind by name: methods, closed forms, encoders, readers, splitters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings.rules import Rule, one_of

Part = TypeVar("Part")


class Registry(Mapping[str, Part]):
    """The registered parts of one kind, in order of registration.

    Every part has its own settings in ``SETTINGS``, a tuple of `Key`. A part registers
    itself in the file that defines it. No other list names it.

    Parameters
    ----------
    kind : str
        The kind's name for messages, e.g. ``"method"``.
    field : str
        The setting that chooses a part, for messages, e.g. ``"base_method"``.
    taken : sequence of str
        Values of that setting that mean something else than a part.
    removed : mapping of str to str
        Names of former parts, and what to use instead.
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
        self._parts: dict[str, Part] = {}

    def add(self, name: str, part: Part) -> Part:
        """Register `part` as `name`; a name that is taken raises `ValueError`.

        If the same definition runs again, it replaces the first. This happens in a
        notebook, or after a failed import.
        """
        if name in self.taken or not _is_the_same(self._parts.get(name, part), part):
            raise ValueError(f"the {self.kind} '{name}' is already registered")
        self._parts[name] = part
        part.name = name  # type: ignore[attr-defined]
        part.chosen_by = self.field  # type: ignore[attr-defined]
        return part

    def registered(self, name: str) -> Callable[[Part], Part]:
        """Decorator: register the decorated part as `name`."""
        return lambda part: self.add(name, part)

    def find(self, name: str) -> Part:
        """The part called `name`. If there is none, a `ConfigError` lists all parts."""
        if name not in self._parts:
            known = ", ".join([*self.taken, *self._parts])
            problem = f"no {self.kind} is called {name!r}; known: {known}"
            raise ConfigError(f"{self.field}: {self.removed(name) or problem}")
        return self._parts[name]

    @property
    def rule(self) -> Rule:
        """The rule of the setting that names a part."""
        return _KnownName(self)

    def removed(self, name: object) -> str:
        """What to say if `name` is a former part's name; "" for any other name."""
        if not isinstance(name, str) or name in self or name not in self._removed:
            return ""
        return f"there is no {name} any more: {self._removed[name]}"

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class _KnownName:
    """The rule that a value names a part. Parts that register later count too."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def __call__(self, value: object) -> str:
        return self._registry.removed(value) or one_of(*self.choices)(value)

    @property
    def choices(self) -> tuple[str, ...]:
        return (*self._registry.taken, *self._registry)


def _is_the_same(one: object, other: object) -> bool:
    """Whether both are the same definition: same name, same module."""
    where = [(p.__module__, getattr(p, "__qualname__", p)) for p in (one, other)]
    return where[0] == where[1]


def import_modules(package: str, folder: Iterable[str]) -> None:
    """Import all modules in a package's `folder`, in order of name, to register their
    parts."""
    for name in sorted(module.name for module in iter_modules(folder)):
        import_module(f"{package}.{name}")
