"""The first message of a client, and where two sides differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join

HANDSHAKE = Handshake(("cat", "dog", "hörse"), 512, "clip", {"seed": "0", "steps": "1"})
NUMBERS = {
    "client": 3,
    "domain": "art",
    "class_names": ["cat", "dog"],
    "dim": 512,
    "encoder": "clip",
    "settings": {"seed": "0"},
    "rows_train": 5,
    "rows_val": 0,
    "rows_test": 2,
    "norm": 4.0,
}


def test_bytes_and_back():
    join = Join(3, "art", HANDSHAKE)
    for sender in ("client 3", "10.0.0.7"):
        assert Join.from_bytes(join.to_bytes(), sender) == join


def test_text_stands_in_it_where_there_is_some_and_only_there():
    told = Join(3, "art", replace(HANDSHAKE, text="a1b2"))
    assert Join.from_bytes(told.to_bytes(), "client 3") == told
    assert "text" not in HANDSHAKE.numbers()
    assert told.handshake.numbers()["text"] == "a1b2"
    mine, theirs = told.handshake, replace(HANDSHAKE, text="c3d4")
    assert mine.difference(theirs) == ("text features is 'c3d4' there and 'a1b2' here")
    assert "text features is not set there" in mine.difference(HANDSHAKE)
    data = wire.pack("join", {**NUMBERS, "text": 5}, {})
    with pytest.raises(MessageError, match="field 'text': expected a text"):
        Join.from_bytes(data, "client 3")


SAME = HANDSHAKE.settings


@pytest.mark.parametrize(
    ("field", "value", "difference"),
    [
        ("settings", dict(SAME), ""),
        ("dim", 768, "dim is 768 there and 512 here"),
        ("encoder", "vit", "encoder is 'vit' there and 'clip' here"),
        ("settings", {**SAME, "seed": "1"}, "seed is '1' there and '0' here"),
        ("settings", {"seed": "0"}, "steps is not set there and '1' here"),
        ("settings", {**SAME, "new": "5"}, "new is '5' there and not set here"),
        ("class_names", ("cat", "cow", "horse"), "class 1 is 'cow' there and 'dog' he"),
        (
            "class_names",
            ("cat", "dog"),
            "class 2 is not set there and 'hörse' here; 2 ",
        ),
        ("class_names", ("ant", "cat", "dog", "hörse"), "; 4 classes there and 3 here"),
    ],
)
def test_the_first_difference_is_named_with_both_values(field, value, difference):
    found = HANDSHAKE.difference(replace(HANDSHAKE, **{field: value}))
    assert difference in found if difference else found == ""


def test_a_difference_stays_short():
    """What a stranger sends goes into an error and the log."""
    long = "x" * 100_000
    for changes in (
        {"encoder": long},
        {"class_names": (long,)},
        {"settings": {"seed": long}},
        {"class_names": tuple(f"class {i}" for i in range(100_000))},
    ):
        assert len(HANDSHAKE.difference(replace(HANDSHAKE, **changes))) < 400


WRONG = {
    "client": [0, 2, "3", True, None],  # it is known as client 3
    "domain": [5, None],
    "class_names": [[], "cat", ["cat", 5], {"cat": "dog"}, None],
    "dim": [0, -5, 512.0, 2**70],
    "encoder": [["clip"]],
    "settings": [["seed"], {"seed": 0}, {"seed": {"a": "b"}}, None],
}


@pytest.mark.parametrize("field", NUMBERS)
def test_a_field_that_is_missing_or_does_not_fit_is_refused_by_name(field):
    rest = {name: value for name, value in NUMBERS.items() if name != field}
    for numbers in (rest, *({**rest, field: value} for value in WRONG.get(field, ()))):
        with pytest.raises(MessageError) as caught:
            Join.from_bytes(wire.pack("join", numbers, {}), "client 3")
        assert (caught.value.field, caught.value.sender) == (field, "client 3")


def test_other_kinds_and_other_bytes_are_refused():
    with pytest.raises(MessageError, match="'update' instead of 'join'"):
        Join.from_bytes(wire.pack("update", NUMBERS, {}), "10.0.0.7")
    whole = wire.pack("join", NUMBERS, {})
    for data in (b"", b"hello", whole[:-3], b"\x80\x04."):
        with pytest.raises(MessageError, match=r"10\.0\.0\.7 refused: field 'header'"):
            Join.from_bytes(data, "10.0.0.7")
