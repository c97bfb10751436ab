"""What docs/paper_to_code.md names exists, and it names all of the paper's parts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")


def named() -> dict[str, set[str]]:
    """Every path in the page's tables, with the names that follow it."""
    found, path = {}, ""
    for line in TEXT.splitlines():
        for span in re.findall(r"`([^`]+)`", line) if line.startswith("|") else ():
            if "/" in span:
                path = span
                found.setdefault(path, set())
            elif not re.match(r"(ggeur|federate|data)\.", span):
                found[path].add(span)
    return found


NAMED = named()


def file_at(path):
    places = (ROOT / "federatedscope_ggeur" / path, ROOT / path)
    return next((place for place in places if place.is_file()), None)


def definitions(path):
    def walk(body, prefix=""):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{node.name}.")

    return set(walk(ast.parse(path.read_text(encoding="utf-8")).body))


@pytest.mark.parametrize("path", sorted(NAMED))
def test_each_file_exists_and_defines_what_is_named(path):
    file = file_at(path)
    assert file is not None
    if NAMED[path]:
        assert NAMED[path] <= definitions(file)


@pytest.mark.parametrize(
    ("kind", "last"), [("Eq.", 5), ("Algorithm", 2), ("Table", 11), ("Figure", 9)]
)
def test_all_of_the_paper_is_there(kind, last):
    numbers = set()
    for words in re.findall(rf"\| {re.escape(kind)}s? ([^:|]+)[:|]", TEXT):
        first = list(map(int, re.findall(r"\d+", words.split("(")[0])))
        numbers |= set(range(first[0], first[1] + 1)) if " to " in words else {*first}
    assert numbers == set(range(1, last + 1))


def test_the_algorithms_are_named_where_they_stand():
    code = file_at("geometry/augmentation.py").read_text(encoding="utf-8")
    for number in (1, 2):
        assert f"Algorithm {number}" in code
