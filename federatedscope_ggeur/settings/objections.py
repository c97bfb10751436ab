"""Settings that do not go together: the part that objects says so, with its reason.

A part has a function ``objections(run)``. `run` holds the facts of a run, and
``run[field]`` is the value of a setting. The function yields an `Objection` for each
reason. If an `Objection` cannot say it, the function yields a `Problem`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

from federatedscope_ggeur.errors import setting

#: A field's name, and what is wrong with its value.
Problem = tuple[str, str]


@dataclass(frozen=True)
class Objection:
    """One setting restricts others: their allowed values, and why.

    Attributes
    ----------
    chosen : str
        The setting of the part that objects.
    allowed : mapping from field to values
        The values that the other settings may have. [] objects without naming a value.
    why : str
        The reason. It ends a sentence that names both settings.
    """

    chosen: str
    allowed: Mapping[str, Any]
    why: str

    def problems(self, run: Any) -> Iterator[Problem]:
        """The fields of `allowed` that have another value in `run`."""
        for field, allowed in self.allowed.items():
            value = run[field]
            if value in allowed:
                continue
            must = f"must be {' or '.join(map(_plain, allowed))}"
            wrong = must if allowed else f"cannot be {_plain(value)}"
            beside = f"{setting(self.chosen)}: {_plain(run[self.chosen])}"
            yield field, f"{wrong} with {beside}, {self.why}"


Objections = Iterable[Union[Objection, Problem]]


def problems_of(objections: Objections, run: Any, wrong: Collection) -> Iterator[str]:
    """The problems that `objections` find in `run`, each as ``"<key>: <problem>"``.

    Skip an objection if the key of its chosen setting is in `wrong`: that value is
    already refused by itself.
    """
    for found in objections:
        problems: Iterable[Problem] = ()
        if not isinstance(found, Objection):
            problems = [found]
        elif setting(found.chosen) not in wrong:
            problems = found.problems(run)
        for field, problem in problems:
            yield f"{setting(field)}: {problem}"


def _plain(value: object) -> str:
    """A setting's value as a YAML file shows it."""
    if value is None:
        return "-1"
    return value if isinstance(value, str) and value else repr(value)
