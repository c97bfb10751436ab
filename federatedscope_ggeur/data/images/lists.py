"""The official split of a data set, as two lists for each domain in separate files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from federatedscope_ggeur.data.images.folder import DomainFiles, Files
from federatedscope_ggeur.data.images.layout import (
    Layout,
    read_lines,
    shown,
    spelling,
    subfolders,
)
from federatedscope_ggeur.errors import DataError

_LINE = re.compile(r"(?:.*/)?([^/]+)/([^/]+)\s+(\d+)")
_OR_NONE = "move all lists elsewhere, so that data.splits makes the split"


class Line(NamedTuple):
    """One line of a list: an image, its class, and the number of the class."""

    class_name: str
    image: str
    number: int


@dataclass(frozen=True)
class OfficialLists:
    """The official lists ``<domain>_<part>.txt`` in a folder.

    Parameters
    ----------
    folder : Path
    parts : (str, str)
        The names of the parts to train on and to test on.
    known_errors : collection of str
        Images ``<class>/<file>`` that the lists name by mistake: no release has them.
    """

    folder: Path
    parts: tuple[str, str]
    known_errors: Collection[str] = ()

    @classmethod
    def find(
        cls,
        layout: Layout,
        root: Path,
        folders: Sequence[str],
        parts: tuple[str, str],
        known_errors: Collection[str] = (),
    ) -> OfficialLists | None:
        """Find the lists among the domains, or in one of `folders` beside them.

        The result is None if there are no lists.
        """
        files = [f"{domain}_{part}.txt" for domain in layout.domains for part in parts]
        for base in layout.bases(root):
            inside = [p for p in subfolders(base) if spelling(p.name) in folders]
            for folder in (base, *inside):
                if any((folder / file).is_file() for file in files):
                    return cls(folder, parts, known_errors)
        return None

    def file(self, domain: str, part: str) -> Path:
        return self.folder / f"{domain}_{part}.txt"

    def lines(self, domain: str, part: str) -> Iterator[Line]:
        """Yield the lines ``<domain>/<class>/<file> <number>`` of one list.

        Raises
        ------
        DataError
            The list is missing or empty, or a line has another form.
        """
        file = self.file(domain, part)
        if not file.is_file():
            raise DataError(
                f"{file}: this official list is missing, but {self.folder} has others. "
                f"Restore it, or {_OR_NONE}."
            )
        lines = read_lines(file)
        if not lines:
            raise DataError(f"{file}: the list names no images. Restore it.")
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is None:
                raise DataError(
                    f"{file}: the line '{line[:80]}' has not the form "
                    "'<domain>/<class>/<file> <number>'. Restore the list."
                )
            yield Line(match[1], match[2], int(match[3]))

    def split(self, domain: DomainFiles, wanted: Collection[str] = ()) -> DomainFiles:
        """Split the domain's files by its two lists.

        The folder decides on an image's class, and not the number in the list. If there
        are `wanted` classes, lines of other classes are ignored.

        Raises
        ------
        DataError
            A list is missing or wrong, names an image that does not exist, or names an
            image that the other list names, too.
        """
        there = {
            f"{name}/{Path(path).name}": (name, path)
            for name, files in domain.train.items()
            for path in files
        }
        listed = []
        for part in self.parts:
            lines = self.lines(domain.name, part)
            named = {
                f"{line.class_name}/{line.image}"
                for line in lines
                if not wanted or line.class_name in wanted
            }
            absent = sorted(named - there.keys() - set(self.known_errors))
            if absent:
                raise DataError(
                    f"{self.file(domain.name, part)}: the list names {len(absent)} "
                    f"image(s) that are not in {domain.folder}: {shown(absent)}. "
                    f"Restore them, or {_OR_NONE}."
                )
            listed.append(named & there.keys())
        both = listed[0] & listed[1]
        if both:
            files = " and ".join(self.file(domain.name, p).name for p in self.parts)
            raise DataError(
                f"{self.folder}: {len(both)} image(s) are in both {files}, e.g. "
                f"'{min(both)}'. Restore the lists."
            )
        train, test = (_by_class(there[key] for key in sorted(p)) for p in listed)
        return DomainFiles(domain.name, domain.folder, train, test)


def _by_class(listed: Iterator[tuple[str, str]]) -> Files:
    found: Files = {}
    for name, path in listed:
        found.setdefault(name, []).append(path)
    return found
