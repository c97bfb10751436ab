"""What a client refuses of a server that wants more than one sum, by name."""

from dataclasses import replace

import pytest
import torch
from sums_of import SESSION, SETTINGS, Sum, changed, clients_of, rows

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges.secure_sums.pairwise import public_key
from federatedscope_ggeur.federation.exchanges.secure_sums.participant import (
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


class TestStages:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"session": OTHER}, "has sent no key for this session"),
            ({"roster": (1, 2, 4)}, "roster has changed"),
            ({"stage": "means"}, "expected 'counts'"),
        ],
    )
    def test_what_is_not_next_is_refused(self, fields, said):
        one = Sum(clients_of()).keys()
        request = replace(one.collector.request("counts"), **fields)
        with pytest.raises(MessageError, match=said):
            one.participants[1].masked(request)

    @pytest.mark.parametrize("fault", ["own key", "two equal", "other keys later"])
    def test_keys_that_were_changed_are_refused(self, fault):
        one = Sum(clients_of()).keys()
        stage = "counts"
        if fault == "other keys later":
            stage = "means"
            one.stage("counts")
        keys = list(one.collector.request(stage).keys)
        made = public_key(bytes(range(32)))
        wanted = {
            "own key": (0, made, "changed the key of client 1"),
            "two equal": (2, keys[1], "two clients have the same key"),
            "other keys later": (2, made, "keys have changed"),
        }
        place, key, said = wanted[fault]
        keys[place] = key
        one.tamper = changed(stage=stage, client=1, keys=tuple(keys))
        with pytest.raises(MessageError, match=said):
            one.stage(stage)

    @pytest.mark.parametrize("fault", ["below", "left out", "counts", "vectors", "own"])
    def test_a_class_list_that_does_not_follow_from_the_counts_is_refused(self, fault):
        clients = clients_of(sizes=(9, 5, 6), seed=2)
        one = Sum(clients).keys().stage("counts")
        request = one.collector.request("means")
        classes, counts = request.classes.clone(), request.counts.clone()
        vectors = request.vectors.clone()
        if fault == "below":
            missing = sorted(set(range(5)) - set(classes.tolist()))
            assert missing, "every class is named; take another seed"
            classes = torch.tensor(sorted([*classes.tolist(), missing[0]]))
            counts = torch.cat([counts, counts[:1]])
        elif fault == "left out":
            classes, counts = classes[1:], counts[1:]
        elif fault == "counts":
            counts[0] += 1
        elif fault == "vectors":
            vectors[1, 0] += 2**60
        else:
            vectors[0, 0] += 1
        one.tamper = changed(
            stage="means", client=1, classes=classes, counts=counts, vectors=vectors
        )
        with pytest.raises(MessageError) as error:
            one.stage("means")
        assert error.value.field in ("classes", "vectors")

    def test_a_refusal_says_nothing_of_how_many_rows_a_client_has(self):
        """Others' counts that the server has made small are taken for true: masks do
        not cancel."""
        for more in (9, 3):
            x, y = rows(7, more)
            held = {**clients_of(), 1: (x, torch.zeros_like(y))}
            one = Sum(held).keys().stage("counts")
            request = one.collector.request("means")
            vectors = request.vectors.clone()
            vectors[2] = SETTINGS.min_samples - vectors[0] - vectors[1]
            all_five = torch.full((5,), SETTINGS.min_samples)
            lie = replace(
                request, vectors=vectors, classes=torch.arange(5), counts=all_five
            )
            one.participants[1].masked(lie)

    @pytest.mark.parametrize("value", [0.7, float("nan"), float("inf")])
    def test_an_origin_where_no_mean_can_be_is_refused(self, value):
        one = Sum(clients_of()).keys().stage("counts").stage("means")
        request = one.collector.request("pooled")
        origin = torch.full_like(request.origin, value)
        with pytest.raises(MessageError) as error:
            one.participants[1].masked(replace(request, origin=origin))
        assert error.value.field == "origin"


def test_on_one_machine_one_line_has_the_keys_of_all(caplog, tmp_path):
    caplog.set_level("INFO")
    Sum(clients_of()).run()
    (line,) = [text for text in caplog.messages if "keys of the roster" in text]
    assert line.startswith("keys of the roster [1, 2, 3]: ")
    caplog.clear()
    Sum(clients_of(), replace(SETTINGS, store=str(tmp_path))).run()
    lines = [text for text in caplog.messages if "keys of the roster" in text]
    assert lines == [f"client {k}: {line}" for k in (1, 2, 3)]
