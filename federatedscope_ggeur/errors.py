"""The exception family. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial

from federatedscope_ggeur.printable import LINE, Lines, printable

_KEYS: dict[str, str] = {}
_LONG = re.compile(r"\S{301,}")
# An absolute path in quotes, which may hold spaces, or a word that is such a path.
_ROOT = r"(?:file://|~\w*|[A-Za-z]:)?[\\/]+"
_QUOTED_PATH = re.compile(rf"""(?<=['"`]){_ROOT}[^'"`\n]+(?=['"`])""")
_PATH = re.compile(rf"""(?<![\w.~:/\\-]){_ROOT}[^\s'"`<>|:;,()\[\]]+""")


def name_settings(keys: Mapping[str, str]) -> None:
    """Register the config key of each field, so that messages can name the key."""
    _KEYS.update(keys)


def setting(field: str) -> str:
    """The name of a setting for a message: its config key if known, else its field
    name.

    `name_settings` registers the config keys. Rooms that see no config know only
    fields.
    """
    return _KEYS.get(field, field)


def shown(value: object, most: int = 100) -> str:
    """`value` as text for a message, cut after `most` characters."""
    try:
        text = str(value) if isinstance(value, Exception) else repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a loop
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` of `names` for a message, and how many more there are."""
    more = len(names) - most
    text = ", ".join(names[:most])
    return f"{text} and {more} more" if more > 0 else text


def did_you_mean(given: object, known: Iterable[object], cutoff: float = 0.6) -> str:
    """A question for the nearest of `known` names, to stand behind a problem.

    Capitals do not count. A setting's last word suffices, if one setting alone has it.
    The answer is "" if no name is near. `cutoff` is that of `get_close_matches`.
    """
    if not isinstance(given, str):
        return ""
    by_case = {name.casefold(): name for name in known if isinstance(name, str)}
    wanted = given.casefold()
    near = get_close_matches(wanted, by_case, n=1, cutoff=cutoff)
    if not near:
        end = "." + wanted.rpartition(".")[2]
        near = [name for name in by_case if name.endswith(end)]
    return f"; did you mean {by_case[near[0]]}?" if len(near) == 1 else ""


def _cut(match: re.Match) -> str:
    return f"{match[0][:100]}... ({len(match[0])} characters)"


class GGEURError(Exception):
    """Base of every error that a user, a data file or a peer can cause.

    The text is printable. It has one line, unless the error was made from `Lines`.
    Words of more than 300 characters are cut, because only a value can be that long.
    """

    @property
    def lines(self) -> list[str]:
        """The lines of the error's text, so that another error can include them."""
        given = self.args[0] if len(self.args) == 1 else super().__str__()
        lines = given.split("\n") if isinstance(given, Lines) else [given]
        return [_LONG.sub(_cut, printable(line, LINE)) for line in lines]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ConfigError(GGEURError, ValueError):
    """A setting is unknown, impossible, or contradicts another one."""


class UntrustedError(ConfigError):
    """A run's folder needs something that only the user may allow.

    Such things are to import a plugin, to read a file outside the folder, or to
    download.
    """


class DataError(GGEURError, ValueError):
    """A data file or array cannot be used as it is."""


class StatisticsError(GGEURError, ValueError):
    """Class statistics do not fit together, or a needed part of them is missing."""


class PluginError(GGEURError):
    """A user's own part failed, or returned a value that cannot be used."""


class MessageError(GGEURError, ValueError):
    """A message was refused before anything used it.

    Parameters
    ----------
    problem : str
        What is wrong and what was expected.
    field : str
        The field of the message that is wrong.
    sender : str
        The sender of the message, e.g. ``"client 3"``.
    """

    def __init__(self, problem: str, *, field: str, sender: str = "unknown sender"):
        self.problem, self.field, self.sender = problem, field, sender
        super().__init__(f"message from {sender} refused: field '{field}': {problem}")

    def __reduce__(self):  # an exception is pickled by its arguments in order
        made = partial(MessageError, field=self.field, sender=self.sender)
        return made, (self.problem,)


def without_folders(text: str) -> str:
    """`text` with each absolute path cut to its last name.

    A peer needs the reason of an error, not the folders of this machine. The log of
    this machine keeps the full text.
    """
    for pattern in (_QUOTED_PATH, _PATH):
        text = pattern.sub(lambda match: _last_name(match[0]), text)
    return text


def _last_name(path: str) -> str:
    return re.split(r"[\\/]+", path.rstrip("\\/"))[-1] or path


def of_client(number: int, problem: str) -> str:
    """`problem` with the client's number in front, unless it stands there already."""
    name = f"client {number}: "
    return problem if problem.startswith(name) else name + problem


@contextmanager
def refusing(
    what: str, otherwise: str = "", kind: type[GGEURError] = ConfigError
) -> Iterator[None]:
    """A context in which a file that cannot be used raises an error of the package.

    The error says `what`, then the problem. If the system failed, these are its words.
    If the content is at fault, it is `otherwise`, by default Python's own text.
    """
    try:
        yield
    except kind:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = getattr(error, "strerror", None) or otherwise or error
        raise kind(f"{what}: {problem}") from error
