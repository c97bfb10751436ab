"""What the server says at the end: it arrives as it was, or is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.course.coordinator import Ending

NAMES = st.sampled_from(["art", "", "a b", "\u00e9\n", "\U0001f40e"])
SHARES = st.dictionaries(NAMES, st.floats(0, 1), max_size=5)


@settings(max_examples=25)
@given(
    head=st.sampled_from(["trained", "calibrated", "closed_form"]),
    by=st.sampled_from([None, "leave_one_out", "validation", "start"]),
    accuracy=st.none() | SHARES,
)
def test_it_arrives_as_it_was(head, by, accuracy):
    sent = Ending(head, by, accuracy)
    assert Ending.from_bytes(sent.to_bytes()) == sent


def message(accuracy=(0.5,), **changes) -> bytes:
    numbers = {"head": "trained", "calibrated_by": "", "domains": ["art"], **changes}
    shares = torch.tensor(accuracy, dtype=torch.float64)
    return wire.pack("ending", numbers, {"accuracy": shares})


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (message(head="mine"), "head"),
        (message(calibrated_by="me"), "calibrated_by"),
        (message([1.5]), "accuracy"),
        (message([0.5, 0.5]), "accuracy"),
        (message(domains="art"), "domains"),
        (b"garbage", "header"),
    ],
)
def test_what_cannot_be_is_refused_by_field(data, field):
    with pytest.raises(MessageError) as error:
        Ending.from_bytes(data)
    assert error.value.field == field
