"""Settings that do not go together. The part that objects gives the reason.

A part has a function ``objections(run)``. `run` holds the facts of a run, and
``run[field]`` is the value of a setting. The function yields an `Objection` for each
reason. If an `Objection` cannot express the reason, the function yields a `Problem`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

from federatedscope_ggeur.errors import setting

#: The name of a field, and the problem with its value.
Problem = tuple[str, str]


@dataclass(frozen=True)
class Objection:
    """The value of one setting restricts other settings.

    Attributes
    ----------
    chosen : str
        The setting that restricts the others. It belongs to the part that objects.
    allowed : mapping from field to values
        The values that each other setting may have. [] allows none and names none. A
        setting of an extra that is not there counts as allowed.
    why : str
        The reason. It ends a sentence that names both settings.
    """

    chosen: str
    allowed: Mapping[str, Any]
    why: str

    def problems(self, run: Any) -> Iterator[Problem]:
        """Yield each field of `allowed` whose value in `run` is not allowed, with the
        problem."""
        for field, allowed in self.allowed.items():
            if field not in run or run[field] in allowed:
                continue
            value = run[field]
            must = f"must be {' or '.join(map(_plain, allowed))}"
            wrong = must if allowed else f"cannot be {_plain(value)}"
            beside = f"{setting(self.chosen)}: {_plain(run[self.chosen])}"
            yield field, f"{wrong} with {beside}, {self.why}"


Objections = Iterable[Union[Objection, Problem]]


def problems_of(objections: Objections, run: Any, wrong: Collection) -> Iterator[str]:
    """Yield the problems that `objections` find in `run`, each as ``"<key>:
    <problem>"``.

    An objection is skipped if `wrong` holds the key of its chosen setting, because that
    value is already refused.
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
