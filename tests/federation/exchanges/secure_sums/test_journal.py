"""A client that starts again goes on with the same session and the same bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sums_of import SETTINGS, Sum, clients_of, fixed_secret

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.exchanges.secure_sums.journal import (
    Journal,
    row_digests,
)
from federatedscope_ggeur.federation.exchanges.secure_sums.participant import (
    Participant,
)


@pytest.fixture
def settings(tmp_path):
    return replace(SETTINGS, store=str(tmp_path / "sums"))


def restarted(one, number):
    """The same client in a new process, which would draw another key."""
    x, y = one.clients[number]
    make = fixed_secret(number, session=99)
    one.participants[number] = Participant(number, x, y, one.settings, make)


@pytest.mark.parametrize("when", ["keys", "counts", "means"])
def test_after_a_restart_the_sum_is_the_same(settings, when):
    plain = Sum(clients_of()).run().statistics
    one = Sum(clients_of(), settings).keys()
    for stage in SETTINGS.stages:
        if stage == when or (when == "keys" and stage == "counts"):
            restarted(one, 2)
        one.stage(stage)
    held = one.collector.summed().statistics
    assert held.means.equal(plain.means)
    assert held.scatter().equal(plain.scatter())


def test_what_was_sent_before_a_restart_is_sent_again(settings):
    one = Sum(clients_of(), settings).keys().stage("counts").stage("means")
    request = one.collector.request("pooled")
    first = one.participants[2].masked(request).to_bytes()
    restarted(one, 2)
    assert one.participants[2].masked(request).to_bytes() == first
    other = replace(request, origin=request.origin * 0.5)
    with pytest.raises(MessageError, match="other contents"):
        one.participants[2].masked(other)


def test_the_secret_is_gone_once_the_last_stage_is_sent(settings):
    one = Sum(clients_of(), settings).keys()
    secret = fixed_secret(2)()
    path = f"{settings.store}/client_0002.sums"
    one.stage("counts").stage("means")
    assert secret in Path(path).read_bytes()
    one.stage("pooled")
    assert secret not in Path(path).read_bytes()
    assert Journal(settings.store, 2).current.secret == b""


def test_nothing_is_sent_that_could_not_be_noted(settings, tmp_path):
    (tmp_path / "sums").write_text("a file where the folder would be")
    with pytest.raises(ConfigError, match="secure_sums_store"):
        Sum(clients_of(), settings).keys()


@pytest.mark.parametrize("fault", ["cut", "changed", "of another client"])
def test_a_file_that_is_damaged_or_another_clients_is_refused(settings, fault):
    Sum(clients_of(), settings).run()
    path = f"{settings.store}/client_0001.sums"
    data = Path(path).read_bytes()
    if fault == "cut":
        data = data[:-9]
    elif fault == "changed":
        data = data[:-1] + bytes([data[-1] ^ 1])
    else:
        data = Path(f"{settings.store}/client_0002.sums").read_bytes()
    Path(path).write_bytes(data)
    with pytest.raises(ConfigError, match="cannot be used"):
        Journal(settings.store, 1)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Sum(clients_of()).run()
    assert not list(tmp_path.iterdir())


def test_repeated_sums_take_no_more_room(settings):
    clients = clients_of()
    sizes = []
    for i in range(3):
        Sum(clients, settings, session=bytes([i] * 16), generation=i).run()
        sizes.append(len(Path(f"{settings.store}/client_0001.sums").read_bytes()))
    assert len(Journal(settings.store, 1).past) == 1
    assert sizes[2] == sizes[1] == sizes[0]


def test_digests_tell_rows_and_labels_apart():
    x, y = clients_of()[1]
    whole = row_digests(x, y)
    assert len(whole) == len(x)
    assert len(row_digests(x[1:], y[1:]) & whole) == len(x) - 1
    assert not row_digests(x, y + 1) & whole


def test_a_row_that_comes_twice_is_told_from_one_that_comes_once():
    x, y = clients_of()[1]
    twice = row_digests(torch.cat([x, x[:1]]), torch.cat([y, y[:1]]))
    assert row_digests(x, y) < twice
    assert len(twice) == len(x) + 1


def test_only_its_owner_may_read_the_file(settings):
    Sum(clients_of(), settings).keys()
    held = Path(settings.store) / "client_0001.sums"
    assert held.stat().st_mode & 0o077 == 0
    assert held.parent.stat().st_mode & 0o077 == 0
