"""Each kind of field arrives as it was; what a field does not allow is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema

F32, I64 = torch.float32, torch.int64
SCHEMA = MessageSchema(num_classes=3, dim=4, num_parameters=10)
COUNTED = replace(SCHEMA, counted_prototypes=True)


class Place(wire.Fields):
    x: float = wire.number(8.0)


class Whole(wire.Payload, kind="whole"):
    client: int = wire.client()
    steps: int = wire.integer(least=1)
    sure: bool = wire.flag()
    stage: str = wire.text(("first", "last"))
    names: tuple[str, ...] = wire.texts()
    about: Mapping[str, str] = wire.mapping()
    place: Place = wire.nested(Place)
    labels: Tensor = wire.labels(distinct=True)
    rows: Tensor = wire.tensor(F32, ("labels", "dim"), (-8.0, 8.0), name="means")
    own: Mapping[str, Tensor] = wire.tensors()
    key: bytes = wire.octets(2)
    order: tuple[int, ...] = wire.integers(
        problem=lambda found: "" if found.sum() < 9 else "is too much"
    )
    counts: Tensor | None = wire.tensor(
        lambda schema: I64,
        lambda schema, earlier: (earlier["steps"],),
        when=lambda schema: schema.counted_prototypes,
        default=None,
    )
    heat: float = wire.number(default=1.0, optional=True)

    def check(self, schema):
        if self.heat > self.steps:
            raise wire.refusal("heat", "is above the steps")


WHOLE = Whole(
    *(3, 2, True, "last", ("a", "ö"), {"b": "c"}, Place(0.5)),
    *(torch.tensor([0, 2]), torch.full((2, 4), -8.0), {"t": torch.ones(1, 2)}),
    *(b"\0\xff", (4, 3)),
)


def spoilt(numbers, tensors, schema=SCHEMA):
    """The error of a message in which these replace others; None takes one out."""
    merged = [{**a, **b} for a, b in zip(WHOLE.write(), (numbers, tensors))]
    kept = [{k: v for k, v in one.items() if v is not None} for one in merged]
    with pytest.raises(MessageError) as caught:
        Whole.from_bytes(wire.pack("whole", *kept), schema, "client 3")
    assert caught.value.sender == "client 3"
    return caught.value


@given(
    st.integers(1, 2**40), st.lists(st.text()), st.sets(st.integers(0, 2)),
    st.binary(min_size=2, max_size=2), st.sampled_from([0.25, 1.0]), st.floats(0, 8),
)  # fmt: skip
def test_what_is_allowed_arrives_as_it_was(steps, names, classes, key, heat, x):
    sent = replace(
        WHOLE, steps=steps, names=tuple(names), about=dict.fromkeys(names, "c"),
        place=Place(x), labels=torch.tensor(sorted(classes), dtype=I64),
        rows=torch.full((len(classes), 4), x), key=key, heat=heat,
    )  # fmt: skip
    found = Whole.from_bytes(sent.to_bytes(), SCHEMA, "client 3")
    assert repr(found) == repr(sent)


@pytest.mark.parametrize(
    ("numbers", "tensors", "field", "words"),
    [
        ({"client": 4}, {}, "client", "expected the sender's own number, got 4"),
        ({"steps": 0}, {}, "steps", "an integer of at least 1, got 0"),
        ({"steps": 2**40 + 1}, {}, "steps", "an integer of at least 1"),
        ({"steps": None}, {}, "steps", "got None"),
        ({"sure": "yes"}, {}, "sure", "an integer"),
        ({"stage": "next"}, {}, "stage", "one of ('first', 'last'), got 'next'"),
        ({"names": ["a", 5]}, {}, "names", "a list of texts"),
        ({"about": {"b": 5}}, {}, "about", "texts by name"),
        ({"x": 8.5}, {}, "x", "a number in 0..8, got 8.5"),
        ({"heat": 3}, {}, "heat", "is above the steps"),
        ({}, {"labels": torch.tensor([0, 3])}, "labels", "must lie in 0..2"),
        ({}, {"labels": torch.tensor([2, 0])}, "labels", "ascending and distinct"),
        ({}, {"means": None}, "means", "missing; got ['key', 'labels', 'order'"),
        ({}, {"means": torch.ones(2, 4).double()}, "means", "expected torch.float32"),
        ({}, {"means": torch.ones(3, 4)}, "means", "shape (2, 4), got (3, 4)"),
        ({}, {"means": torch.full((2, 4), torch.nan)}, "means", "NaN or infinity"),
        ({}, {"means": torch.full((2, 4), 9.0)}, "means", "in -8..8, got 9"),
        ({}, {"own.t": torch.ones([1] * 9)}, "own.t", "in at most 8 dimensions"),
        ({}, {"key": torch.zeros(3, dtype=torch.uint8)}, "key", "expected shape (2)"),
        ({}, {"order": torch.tensor([4, 5])}, "order", "is too much"),
        ({}, {"counts": torch.ones(2)}, "counts", "has no such tensor"),
        ({}, {"junk": torch.ones(2)}, "junk", "has no such tensor"),
    ],
)
def test_what_is_not_is_refused_by_sender_and_field(numbers, tensors, field, words):
    error = spoilt(numbers, tensors)
    assert error.field == field
    assert words in error.problem


def test_a_field_travels_in_runs_that_have_it():
    assert spoilt({}, {}, schema=COUNTED).field == "counts"
    sent = replace(WHOLE, counts=torch.tensor([5, 6]))
    found = Whole.from_bytes(sent.to_bytes(), COUNTED, "client 3")
    assert torch.equal(found.counts, sent.counts)
    error = spoilt({"steps": 1}, {"counts": sent.counts}, schema=COUNTED)
    assert error.field == "counts"


def test_a_default_may_stay_at_home():
    assert b"heat" not in WHOLE.to_bytes()
    assert b"heat" in replace(WHOLE, heat=2.0).to_bytes()


def test_each_field_says_how_it_travels():
    with pytest.raises(TypeError, match=r"Silent\.n does not say how it travels"):
        type("Silent", (wire.Fields,), {"n": 3, "__annotations__": {"n": "int"}})
