"""The server: what it adds, and what it notices of masks that do not cancel."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats
from sums_of import SETTINGS, Sum, clients_of, fixed_secret, rows

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.extras.secure_sums.collector import Collector
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.models import build_closed_form


@pytest.mark.parametrize("roster", [(), (1,), (1, 2)])
def test_fewer_than_three_make_no_sum(roster):
    with pytest.raises(GGEURError, match=f"{len(roster)} clients take part"):
        Collector(SETTINGS, roster)


def test_two_equal_keys_are_named():
    one = Sum(clients_of())
    one.participants[3]._make_secret = fixed_secret(1)
    with pytest.raises(GGEURError, match="clients 1 and 3 sent the same key"):
        one.keys()


def test_an_unfinished_stage_gives_nothing_and_names_who_is_missing():
    one = Sum(clients_of()).keys()
    request = one.collector.request("counts")
    one.collector.add([one.participants[k].masked(request) for k in (1, 3)])
    with pytest.raises(GGEURError, match=r"lacks the vectors of clients \[2\]"):
        one.collector.end("counts")


def test_what_an_unfinished_session_has_sent_is_uniform():
    """All uploads in hand but one: their total is noise."""
    settings = SumSettings(3, 200, 3)
    clients = {k: rows(k, 30, classes=3, dim=200) for k in (1, 2, 3, 4)}
    one = Sum(clients, settings)
    one.run()
    sent = [one.sent["pooled", k].numpy().view(np.uint64) for k in (1, 2, 3)]
    for total in (sent[0], sent[0] + sent[1], sum(sent)):
        table = total.astype("<u8").view(np.uint8).reshape(-1, 8)
        for column in table.T:
            counts = np.bincount(column, minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-5


def test_more_rows_than_the_settings_allow_are_named():
    one = Sum(clients_of(), replace(SETTINGS, max_rows=20)).keys()
    with pytest.raises(GGEURError, match=r"35 rows together, but .*max_rows"):
        one.stage("counts")


def test_no_class_of_enough_rows_is_said():
    one = Sum(clients_of(), replace(SETTINGS, min_samples=30)).keys()
    with pytest.raises(GGEURError, match="no class has 30 rows"):
        one.stage("counts")


@cache
def summed(dim=4):
    """Of class 0 client 1 has all but two rows; 3 classes."""
    parts = {1: [20, 5, 5], 2: [1, 5, 6], 3: [1, 6, 5]}
    clients = {}
    for k, counts in parts.items():
        y = torch.from_numpy(np.repeat(np.arange(3), counts))
        clients[k] = rows(k, len(y), classes=3, dim=dim)[0], y
    found = Sum(clients, SumSettings(3, dim, 3)).run()
    assert found.kept_back == (0,)
    return found


class TestForHead:
    """Where a head tells means it is made without the classes that are kept back."""

    @pytest.mark.parametrize(
        ("name", "options", "shape", "classes"),
        [
            ("lda", {"shrinkage": 0.3}, False, [0, 1, 2]),
            ("lda", {"shrinkage": 0.3}, True, [1, 2]),
            ("lda", {"shrinkage": 0.95}, False, [1, 2]),
            ("ridge", {"strength": 0.5}, False, [0, 1, 2]),
            ("ridge", {"strength": 0.5}, True, [1, 2]),
            ("ridge", {"strength": 50.0}, False, [1, 2]),
            ("ridge", {"alpha": 0.01}, False, [0, 1, 2]),
            ("ridge", {"alpha": 1e6}, False, [1, 2]),
            ("ncm", {}, False, [1, 2]),
        ],
    )
    def test_by_form(self, name, options, shape, classes):
        form = build_closed_form(name, {name: options})
        assert summed().for_head(form, shape).classes == classes

    def test_with_more_classes_than_dimensions(self):
        form = build_closed_form("lda", {"lda": {"shrinkage": 0.3}})
        assert summed(2).for_head(form, False).classes == [1, 2]
