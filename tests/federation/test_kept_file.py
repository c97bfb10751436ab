"""A file that one process of a client alone may change."""

import threading

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.kept_file import KeptFile


def kept(folder):
    return KeptFile(str(folder), "client_0001.upload", "dp.ledger", 1)


def test_one_process_alone_changes_it(tmp_path):
    one, other = kept(tmp_path), kept(tmp_path)
    assert one.read() is other.read() is None
    one.write(b"first")
    one.write(b"second")
    for act in (lambda: other.write(b"third"), other.alone().__enter__):
        with pytest.raises(ConfigError, match="client 1 runs twice"):
            act()
    assert one.path.read_bytes() == b"second"
    assert other.read() == b"second"
    other.write(b"third")


def test_the_salt_is_made_once_and_is_private(tmp_path):
    salt = kept(tmp_path / "a")
    with salt.locked():
        made = salt.salt()
    assert len(made) == 32
    assert kept(tmp_path / "a").salt() == made
    salt.write(b"content")
    for path in (salt.path, salt.path.with_suffix(".salt"), salt.path.parent):
        assert path.stat().st_mode & 0o077 == 0  # its owner alone may read it


def test_of_two_at_once_one_waits_and_finds_that_it_is_late(tmp_path):
    one, other = kept(tmp_path), kept(tmp_path)
    entered, said = threading.Event(), []

    def enter():
        try:
            with other.alone():
                entered.set()
        except ConfigError as error:
            said.append(str(error))

    with one.alone():
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.1)
        one.write(b"first")
    waiting.join()
    assert not entered.is_set()
    assert "client 1 runs twice" in said[0]
