"""A client that starts again goes on with the same session and the same bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sums_of import SETTINGS, Sum, clients_of, fixed_secret

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.extras.secure_sums.journal import Journal
from federatedscope_ggeur.extras.secure_sums.participant import (
    Participant,
)
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.kept_file import row_digests


@pytest.fixture
def settings(tmp_path):
    return replace(SETTINGS, store=str(tmp_path / "sums"))


def restarted(one, number):
    """The same client in a new process, which would draw another key."""
    x, y = one.clients[number]
    make = fixed_secret(number, session=99)
    one.participants[number] = Participant(number, x, y, one.settings, make)


@pytest.mark.parametrize("stage", SETTINGS.stages)
def test_after_a_restart_the_sum_is_the_same(settings, stage):
    plain = Sum(clients_of()).run().statistics
    one = Sum(clients_of(), settings).keys()
    for now in SETTINGS.stages:
        if now == stage:
            for number in one.clients:
                restarted(one, number)
        one.stage(now)
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


LABELLED = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=4
)


@given(LABELLED, LABELLED, st.booleans())
def test_digests_are_alike_where_rows_are(one, other, back):
    """A row is a number here, and a class its name; -0 is 0."""

    def digests(labelled, salt=bytes(32), sign=1, names=("a", "b")):
        x = sign * torch.tensor([[float(row)] * 3 for row, _ in labelled])
        y = torch.tensor([names.index("ab"[c]) for _, c in labelled])
        return row_digests(x, y, names, salt)

    names = ("b", "a") if back else ("a", "b")
    here, there = digests(one), digests(other, names=names)
    assert (here.whole == there.whole) == (sorted(one) == sorted(other))
    shared = {row for row, _ in one} & {row for row, _ in other}
    assert len(here.rows & there.rows) == len(shared)
    salted = digests(one, salt=bytes([1]) * 32)
    assert not here.rows & salted.rows
    assert here.whole != salted.whole
    if not any(row for row, _ in one):
        assert digests(one, sign=-1) == here


def test_the_salt_is_made_once_and_never_sent(settings):
    one = Sum(clients_of(), settings)
    salt = (Path(settings.store) / "client_0001.salt").read_bytes()
    one.run()
    sent = [v.numpy().tobytes() for v in one.sent.values()]
    assert len(salt) == 32
    assert not any(salt in data for data in [*one.down, *one.up, *sent])
    again = Sum(clients_of(), settings, session=bytes(16), generation=1)
    again.run()
    assert (Path(settings.store) / "client_0001.salt").read_bytes() == salt


@pytest.mark.parametrize("fault", ["missing", "cut", "another"])
def test_a_journal_without_its_salt_is_refused(settings, fault):
    """With a new one all rows would pass for new."""
    Sum(clients_of(), settings).run()
    path = Path(settings.store) / "client_0001.salt"
    if fault == "missing":
        path.unlink()
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.write_bytes((path.parent / "client_0002.salt").read_bytes())
    with pytest.raises(ConfigError, match=r"client_0001.sums' cannot be used.*salt"):
        Journal(settings.store, 1)


def test_a_journal_of_an_earlier_version_is_refused_and_stays(settings):
    """As that version wrote it: digests with the numbers of classes, no salt."""
    Sum(clients_of(), settings).run()
    path = Path(settings.store) / "client_0001.sums"
    (path.parent / "client_0001.salt").unlink()
    message = wire.unpack(path.read_bytes(), "sums journal", "test")
    numbers = {
        name: value
        for name, value in message._numbers.items()
        if name not in ("form", "salt", "checksum")
    }
    tensors = message._tensors
    data = wire.pack("sums journal", wire.sealed(numbers, tensors), tensors)
    path.write_bytes(data)
    with pytest.raises(ConfigError) as error:
        Journal(settings.store, 1)
    assert "another version of this program wrote it" in str(error.value)
    assert "Name another folder" in str(error.value)
    assert path.read_bytes() == data


def test_of_two_processes_of_one_client_only_one_goes_on(settings):
    """Each has read the journal before the other wrote it."""
    one = Sum(clients_of(), settings)
    other = Sum(clients_of(), settings, session=bytes(16), generation=1)
    one.keys()
    with pytest.raises(ConfigError, match="client 1 runs twice"):
        other.keys()
    one.stage("counts")
