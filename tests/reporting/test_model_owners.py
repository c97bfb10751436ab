"""Whose model is to predict: one number for all rows, or one for each."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.reporting import ClientInfo, numbers_of_rows

KNOWN = [ClientInfo(1, "art", 9, 3), ClientInfo(4, "photo", 9, 3)]


def numbers(clients, rows=3, shared=True, known=KNOWN):
    return numbers_of_rows(clients, rows, known, shared, "--clients").tolist()


@pytest.mark.parametrize("one", [4, np.int64(4), torch.tensor(4)])
def test_one_number_is_for_all_rows(one):
    assert numbers(one) == [4, 4, 4]
    assert numbers(one, rows=0) == []


@pytest.mark.parametrize(
    "each",
    [[1, 4, 0], (1, 4, 0), np.array([1, 4, 0], dtype="i2"), torch.tensor([1, 4, 0])],
    ids=str,
)
def test_one_number_for_each_row(each):
    assert numbers(each) == [1, 4, 0]
    assert numbers([], rows=0) == []


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        (None, "say which client's model is to predict"),
        (2, "there is no client 2"),
        ([1, 4, 10**9], "there is no client 1000000000"),
        ("art", "must be a client's number"),
        (1.0, "must be a client's number"),
        (True, "must be a client's number"),
        ([[1, 4, 1]], "must be a client's number"),
        ([[1], [4, 1]], "must be a client's number"),
        ([1, None, 4], "must be a client's number"),
    ],
    ids=str,
)
def test_another_is_refused_with_the_clients(clients, said):
    with pytest.raises(DataError, match=rf"--clients: .*{said}") as caught:
        numbers(clients)
    assert "1 (art), 4 (photo)" in str(caught.value)


@pytest.mark.parametrize("clients", [[1, 4], [], [1] * 4], ids=str)
def test_as_many_as_rows(clients):
    with pytest.raises(DataError, match=f"each of the 3 rows, got {len(clients)}"):
        numbers(clients)


def test_without_a_global_model_there_is_no_number_0():
    with pytest.raises(DataError, match="there is no client 0"):
        numbers(0, shared=False)
    with pytest.raises(DataError, match="0 is the global model"):
        numbers(None)
    with pytest.raises(DataError) as caught:
        numbers(None, shared=False)
    assert "global" not in str(caught.value)


def test_of_many_clients_and_odd_names_the_message_stays_short():
    odd = "two\nlines\x1b[31m" + "x" * 5000
    many = [ClientInfo(k, odd, 1, 1) for k in range(1, 500)]
    with pytest.raises(DataError, match="479 more") as caught:
        numbers(None, known=many)
    said = str(caught.value)
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 3000
