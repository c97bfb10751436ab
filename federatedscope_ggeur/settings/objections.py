"""What settings cannot be beside others: each part says so, with the reason.

A part has a function ``objections(run)``. `run` holds the facts of a run, and
``run[field]`` is the value of a setting. The function yields an `Objection` for each
reason; or a field and what is wrong with it, where that needs other words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

from federatedscope_ggeur.errors import setting

#: A field's name, and what is to be said of it.
Problem = tuple[str, str]


@dataclass(frozen=True)
class Objection:
    """What other settings must be because of one.

    Attributes
    ----------
    chosen : str
        The setting of the part that objects.
    allowed : mapping from field to values
        What others may be; [] where no value fits that this could say.
    why : str
        The reason: the end of a sentence that names both.
    """

    chosen: str
    allowed: Mapping[str, Any]
    why: str

    def problems(self, run: Any) -> Iterator[Problem]:
        """What of `allowed` is otherwise in `run`."""
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
    """What is said of settings together, each ``"<key>: <problem>"``; nothing because
    of one whose key is `wrong` by itself."""
    for found in objections:
        problems: Iterable[Problem] = ()
        if not isinstance(found, Objection):
            problems = [found]
        elif setting(found.chosen) not in wrong:
            problems = found.problems(run)
        for field, problem in problems:
            yield f"{setting(field)}: {problem}"


def _plain(value: object) -> str:
    """A setting's value as a YAML file has it."""
    if value is None:
        return "-1"
    return value if isinstance(value, str) and value else repr(value)
