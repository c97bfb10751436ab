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
    """What is registered of one kind, in order of registration.

    Every part has ``SETTINGS``, a tuple of `Key`: its own settings. A part registers
    itself where it is defined; nothing else lists it.

    Parameters
    ----------
    kind : str
        For messages, e.g. ``"method"``.
    field : str
        The setting that names one, for messages, e.g. ``"base_method"``.
    taken : sequence of str
        Values of that setting which name no part.
    removed : mapping of str to str
        Names of parts that there were, and what to take instead.
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
        """Register `part` and name it so; a name that is taken is a `ValueError`.

        The same definition made again, as in a notebook or after an import that
        failed, takes the place of the first.
        """
        if name in self.taken or not _is_the_same(self._parts.get(name, part), part):
            raise ValueError(f"the {self.kind} '{name}' is already registered")
        self._parts[name] = part
        part.name = name  # type: ignore[attr-defined]
        part.chosen_by = self.field  # type: ignore[attr-defined]
        return part

    def registered(self, name: str) -> Callable[[Part], Part]:
        """Decorator: register what it stands on as `name`."""
        return lambda part: self.add(name, part)

    def find(self, name: str) -> Part:
        """The part called `name`; a `ConfigError` that lists all, if there is none."""
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
        """What to say of the name of a part that there was; "" of any other."""
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
    """The rule that a value names a part, of a plugin's too that registers later."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def __call__(self, value: object) -> str:
        return self._registry.removed(value) or one_of(*self.choices)(value)

    @property
    def choices(self) -> tuple[str, ...]:
        return (*self._registry.taken, *self._registry)


def _is_the_same(one: object, other: object) -> bool:
    """Whether both are one definition: of one name in one module."""
    where = [(p.__module__, getattr(p, "__qualname__", p)) for p in (one, other)]
    return where[0] == where[1]


def import_modules(package: str, folder: Iterable[str]) -> None:
    """Import every module in a package's `folder`, by name: their parts register."""
    for name in sorted(module.name for module in iter_modules(folder)):
        import_module(f"{package}.{name}")
