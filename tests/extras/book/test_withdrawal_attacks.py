"""Each rule of withdrawal: without it, the audit's attacks find rows in what changed.

The attacker has the book's statistics before and after, and the difference of both. The
rows have length 1, and several of them share no dimension with others' rows.
"""

import pytest
import torch
from books import CONFIG, rows_of

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.audit.base import Clock, Transcript, Truth, matched
from federatedscope_ggeur.extras.audit.known_rows import a1, a1b
from federatedscope_ggeur.extras.book import federation
from federatedscope_ggeur.extras.book.federation import Federation

DIM, CLASS = 8, 1


@pytest.fixture
def client():
    """A client with twelve rows of one class, of length 1."""
    rows = torch.randn(12, DIM, generator=torch.Generator().manual_seed(0))
    return rows / rows.norm(dim=1, keepdim=True), torch.full((12,), CLASS)


@pytest.fixture
def book(tmp_path, client):
    book = Federation.create(tmp_path / "a", ["ant", "bee", "cat"], DIM, CONFIG)
    book.join(1, *client, "here")
    wide, labels = rows_of(2)
    book.join(2, torch.nn.functional.pad(wide, (0, DIM - wide.shape[1])), labels, "b")
    return book


def found_in(statistics, client):
    """How many of the client's rows the audit's attacks find in statistics on the
    grid: as a mean, by A1, or by A1b.
    """
    truth = Truth({1: client}, (client[0][:0], client[1][:0]), 3)
    held = statistics.statistics()
    seen = Transcript(role=None, uploads={1: held})
    attacks = (attack(seen, truth, Clock(30)) for attack in (a1, a1b))
    by_rows = sum(int(one.value or 0) for found in attacks for one in found)
    return max(by_rows, matched(held.means[held.classes], client[0].double()))


def attacked(book, client, *steps):
    """The most rows found before, after, or in the difference, over withdrawals of so
    many rows each.
    """
    (x, y), start, found = client, 0, 0
    for rows in steps:
        before = book.total([1])
        book.withdraw(1, x[start : start + rows], y[start : start + rows])
        start += rows
        after = book.total([1]) if 1 in book.clients else before - before
        found = max(found, found_in(before - after, client), found_in(after, client))
    return found


#: Withdrawals of so many rows one after another, and what a rule about them forbids.
BROKEN = {
    "one row goes": (1,),
    "three rows go": (3,),
    "one row stays": (11,),
    "three rows stay": (9,),
    "the whole class goes in two files": (9, 3),
}


@pytest.mark.parametrize("steps", BROKEN.values(), ids=BROKEN)
def test_without_the_rule_rows_are_found(book, client, steps, monkeypatch):
    with pytest.raises(ConfigError, match="would reveal single rows"):
        attacked(book, client, *steps)
    assert book.total([1]).counts[CLASS] == 12
    monkeypatch.setattr(federation, "check_withdrawal", lambda *about: None)
    assert attacked(book, client, *steps) in (1, 3)


@pytest.mark.parametrize("steps", [(5,), (7,), (12,), (5, 7), (7, 5)])
def test_with_the_rule_none_are_found(book, client, steps):
    assert found_in(book.total([1]), client) == 0
    assert attacked(book, client, *steps) == 0


def test_the_rule_is_about_each_class(book, client, monkeypatch):
    """Six rows of one class do not hide one row of another."""
    both = client[0], torch.where(torch.arange(12) < 6, CLASS, 2)
    book.join(3, *both, "here")
    gone = both[0][:7], both[1][:7]
    with pytest.raises(ConfigError, match="class 'cat'"):
        book.withdraw(3, *gone)
    monkeypatch.setattr(federation, "check_withdrawal", lambda *about: None)
    before = book.total([3])
    book.withdraw(3, *gone)
    assert found_in(before - book.total([3]), client) == 1


def test_to_join_again_with_a_row_less_shows_the_row(book, client):
    """A limit that docs/living.md names: a server may keep what a book deletes."""
    kept = book.total([1])
    book.leave(1)
    book.join(1, client[0][1:], client[1][1:], "here")
    assert found_in(kept - book.total([1]), client) == 1
