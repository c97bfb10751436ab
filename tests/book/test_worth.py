"""What clients add: exact Shapley values, against all orders."""

from itertools import permutations

import pytest
import torch
from books import NAMES, new_book, rows_of

from federatedscope_ggeur.book.worth import worth
from federatedscope_ggeur.errors import ConfigError


def accuracy(book, part, rows):
    if not part:
        return 1 / len(NAMES)
    found = book.head(part).model(rows[0]).argmax(dim=1)
    return float((found == rows[1]).double().mean())


def test_shapley_values_are_means_over_all_orders(tmp_path):
    book = new_book(tmp_path / "a")
    for k, classes in enumerate([(0, 1), (1, 2), (0, 1, 2), (2,)], 1):
        book.join(k, *rows_of(k, classes), "here")
    rows, clients = rows_of(99, each=40), book.clients
    orders = list(permutations(clients))
    found = worth(book, *rows)
    for one in found:
        added = [
            accuracy(book, order[: order.index(one.client) + 1], rows)
            - accuracy(book, order[: order.index(one.client)], rows)
            for order in orders
        ]
        assert one.shapley == pytest.approx(sum(added) / len(orders), abs=1e-12)
        others = [k for k in clients if k != one.client]
        gap = accuracy(book, clients, rows) - accuracy(book, others, rows)
        assert one.left_out == pytest.approx(gap, abs=1e-12)
    total = accuracy(book, clients, rows) - 1 / len(NAMES)
    assert sum(one.shapley for one in found) == pytest.approx(total, abs=1e-12)


def test_many_clients_are_left_out_one_by_one(tmp_path):
    book = new_book(tmp_path / "a", range(1, 14))
    found = worth(book, *rows_of(99))
    assert [one.client for one in found] == list(range(1, 14))
    assert all(one.shapley is None for one in found)


def test_what_is_refused(tmp_path):
    book = new_book(tmp_path / "a")
    with pytest.raises(ConfigError, match="no client"):
        worth(book, *rows_of(1))
    with pytest.raises(ConfigError, match="labels in 0"):
        worth(book, torch.zeros(1, 5), torch.tensor([3]))
