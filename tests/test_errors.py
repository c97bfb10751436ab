"""Errors and what they call the settings they speak of."""

import pytest

from federatedscope_ggeur import errors
from federatedscope_ggeur.errors import (
    ConfigError,
    DataError,
    GGEURError,
    MessageError,
    StatisticsError,
    did_you_mean,
    listed,
    name_settings,
    of_client,
    setting,
    without_folders,
)


@pytest.mark.parametrize("error", [ConfigError, DataError, StatisticsError])
def test_every_error_is_one_of_ours_and_of_a_value(error):
    assert issubclass(error, GGEURError)
    assert issubclass(error, ValueError)


def test_a_refused_message_names_its_sender_and_field():
    error = MessageError("holds NaN", field="params", sender="client 3")
    assert (error.problem, error.field, error.sender) == (
        "holds NaN",
        "params",
        "client 3",
    )
    assert str(error) == "message from client 3 refused: field 'params': holds NaN"
    assert "unknown sender" in str(MessageError("cut off", field="header"))


def test_a_setting_is_called_by_its_key_once_that_is_known(monkeypatch):
    monkeypatch.setattr(errors, "_KEYS", {})
    assert setting("quorum") == "quorum"
    name_settings({"quorum": "my.quorum"})
    assert setting("quorum") == "my.quorum"
    assert setting("other") == "other"


def test_of_many_names_some_are_listed():
    assert listed([], 2) == ""
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


def test_a_client_is_named_once():
    assert of_client(2, "no rows") == "client 2: no rows"
    assert of_client(2, "client 2: no rows") == "client 2: no rows"
    assert of_client(2, "client 21: no rows") == "client 2: client 21: no rows"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("fedporx", "fedprox"),
        ("LDA", "lda"),
        ("lr", "train.optimizer.lr"),
        ("optimizer.lr", "train.optimizer.lr"),
        ("name", ""),  # two settings end in it
        ("zzzz", ""),
        ("", ""),
        (3, ""),
        (None, ""),
    ],
)
def test_the_nearest_known_name_is_asked_for(given, near):
    known = ["fedprox", "lda", "train.optimizer.lr", "a.b.name", "c.d.name", 7]
    wanted = f"; did you mean {near}?" if near else ""
    assert did_you_mean(given, known, 0.75) == wanted


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("'/home/alice/data/x.npz': has NaN", "'x.npz': has NaN"),
        (
            "[Errno 2] No such file: '/home/al ice/x y.npz'",
            "[Errno 2] No such file: 'x y.npz'",
        ),
        ("in /srv/secret/train.npz, row 3", "in train.npz, row 3"),
        ("data.root: /home/alice/data", "data.root: data"),
        ("the folder '/home/alice/data/'", "the folder 'data'"),
        ("my_plugin (/home/alice/p.py, line 3)", "my_plugin (p.py, line 3)"),
        ("~/data/x.npz and file:///home/alice/y", "x.npz and y"),
        (r"'C:\Users\alice\x.npz'", "'x.npz'"),
    ],
)
def test_a_peer_is_not_told_folders(text, left):
    assert without_folders(text) == left
    assert without_folders(left) == left


@pytest.mark.parametrize(
    "text",
    ["https://example.org/a/b", "and/or, N/A, 1/2, a / b", "'data/x.npz'", "it's '/'"],
)
def test_text_that_is_no_absolute_path_stays(text):
    assert without_folders(text) == text
