"""What a client refuses of a server that wants more than one sum, by name."""

from dataclasses import replace

import pytest
import torch
from sums_of import SESSION, SETTINGS, Sum, changed, clients_of, rows

from federatedscope_ggeur.crypto import public_key
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.participant import (
    Participant,
)

OTHER = SESSION[::-1]


def asked(**fields):
    """The request for keys, with other fields, and the first client's participant."""
    one = Sum(clients_of())
    return one.participants[1], replace(one.collector.keys_request(), **fields)


class TestKeys:
    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"min_clients": 2}, "min_clients"),
            ({"min_samples": 1}, "min_samples"),
            ({"radius": 5.0}, "radius"),
            ({"max_rows": 7}, "max_rows"),
            ({"fraction_bits": 12}, "fraction_bits"),
            ({"roster": (1, 2)}, "roster"),
            ({"roster": (2, 3, 4)}, "roster"),
        ],
    )
    def test_other_settings_than_its_own_are_refused(self, fields, field):
        client, request = asked(**fields)
        with pytest.raises(MessageError) as error:
            client.key(request)
        assert error.value.field == field

    def test_the_same_session_gets_the_same_key_and_another_a_fresh_one(self):
        x, y = rows(1, 8)
        client = Participant(1, x, y, SETTINGS)
        request = Sum(clients_of()).collector.keys_request()
        assert client.key(request) == client.key(request)
        other = client.key(replace(request, session=OTHER))
        assert other.key != client.key(request).key

    def test_another_roster_in_the_same_session_is_refused(self):
        client, request = asked()
        client.key(request)
        with pytest.raises(MessageError, match="roster has changed"):
            client.key(replace(request, roster=(1, 2, 4)))

    def test_a_row_that_is_too_long_ends_it_without_saying_how_long(self, caplog):
        x, y = rows(1, 8)
        client = Participant(1, x * 30, y, SETTINGS)
        with pytest.raises(GGEURError, match="secure_sums_radius") as error:
            client.key(Sum(clients_of()).collector.keys_request())
        norm = f"{float((x * 30).double().norm(dim=1).max()):.4g}"
        assert norm in caplog.text
        assert norm not in str(error.value)


MADE = public_key(bytes(range(32)))


def put(items, place, value):
    return (*items[:place], value, *items[place:][1:])


def added(tensor, place, number):
    changed = tensor.clone()
    changed[place] += number
    return changed


def with_a_row_more(request):
    """What follows if client 2 seems to have a row more of the first class."""
    vectors = added(request.vectors, (1, int(request.classes[0])), 1)
    totals = vectors.sum(dim=0)
    classes = torch.nonzero(totals >= 3).flatten()
    return {"classes": classes, "counts": totals[classes], "vectors": vectors}


#: What client 1 is sent in a stage, and what it says. Where that is nothing it cannot
#: know, and masks do not cancel.
LIES = {
    "another session": ("counts", lambda r: {"session": OTHER}, "has sent no key for"),
    "another roster": ("counts", lambda r: {"roster": (1, 2, 4)}, "roster has changed"),
    "a later stage": ("counts", lambda r: {"stage": "means"}, "expected 'counts'"),
    "another key of its own": (
        *("counts", lambda r: {"keys": put(r.keys, 0, MADE)}),
        "changed the key of client 1",
    ),
    "two equal keys": (
        *("counts", lambda r: {"keys": put(r.keys, 2, r.keys[1])}),
        "two clients have the same key",
    ),
    "other keys later": (
        *("means", lambda r: {"keys": put(r.keys, 2, MADE)}),
        "keys have changed",
    ),
    "a key of the server's": ("counts", lambda r: {"keys": put(r.keys, 2, MADE)}, ""),
    "a class below": (
        "means",
        lambda r: {
            "classes": torch.arange(5),
            "counts": torch.cat([r.counts, r.counts[:1]])[:5],
        },
        "field 'classes'",
    ),
    "a class left out": (
        *("means", lambda r: {"classes": r.classes[1:], "counts": r.counts[1:]}),
        "field 'classes'",
    ),
    "other counts": (
        *("means", lambda r: {"counts": added(r.counts, 0, 1)}),
        "field 'classes'",
    ),
    "vectors of too many rows": (
        *("means", lambda r: {"vectors": added(r.vectors, (1, 0), 2**60)}),
        "field 'vectors'",
    ),
    "another vector of its own": (
        *("means", lambda r: {"vectors": added(r.vectors, (0, 0), 1)}),
        "field 'vectors'",
    ),
    "classes that follow": ("means", with_a_row_more, ""),
    **{
        f"an origin of {value}": (
            *("pooled", lambda r, v=value: {"origin": torch.full_like(r.origin, v)}),
            "field 'origin'",
        )
        for value in (0.7, float("nan"), float("inf"))
    },
    "another origin": ("pooled", lambda r: {"origin": r.origin * 0.5}, ""),
}


@pytest.mark.parametrize(("stage", "lie", "said"), LIES.values(), ids=LIES)
def test_what_one_client_alone_is_sent_is_refused_or_noticed(stage, lie, said):
    one = Sum(clients_of(sizes=(9, 5, 6), seed=2)).keys()
    for earlier in SETTINGS.stages[: SETTINGS.stages.index(stage)]:
        one.stage(earlier)
    request = one.collector.request(stage)
    assert len(request.classes) < 5, "every class is named; take another seed"
    if said:
        with pytest.raises(MessageError, match=said):
            one.participants[1].masked(replace(request, **lie(request)))
        return
    one.tamper = changed(stage=stage, client=1, **lie(request))
    with pytest.raises(GGEURError, match=f"stage '{stage}' is impossible"):
        one.stage(stage)


def test_a_refusal_says_nothing_of_how_many_rows_a_client_has():
    """Others' counts that the server has made small are taken for true: masks do not
    cancel."""
    for more in (9, 3):
        x, y = rows(7, more)
        held = {**clients_of(), 1: (x, torch.zeros_like(y))}
        one = Sum(held).keys().stage("counts")
        request = one.collector.request("means")
        least = SETTINGS.min_samples
        vectors = request.vectors.clone()
        vectors[2] = least - vectors[0] - vectors[1]
        named = {"classes": torch.arange(5), "counts": torch.full((5,), least)}
        one.participants[1].masked(replace(request, vectors=vectors, **named))


def test_on_one_machine_one_line_has_the_keys_of_all(caplog, tmp_path):
    caplog.set_level("INFO")
    Sum(clients_of()).run()
    (line,) = [text for text in caplog.messages if "keys of the roster" in text]
    assert line.startswith("keys of the roster [1, 2, 3]: ")
    caplog.clear()
    Sum(clients_of(), replace(SETTINGS, store=str(tmp_path))).run()
    lines = [text for text in caplog.messages if "keys of the roster" in text]
    assert lines == [f"client {k}: {line}" for k in (1, 2, 3)]
