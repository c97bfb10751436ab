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

    def test_the_same_request_gets_the_same_bytes_and_another_none(self):
        one = Sum(clients_of()).keys().stage("counts").stage("means")
        request = one.collector.request("pooled")
        client = one.participants[2]
        first = client.masked(request).to_bytes()
        assert client.masked(request).to_bytes() == first
        other = replace(request, origin=request.origin + 0.01)
        with pytest.raises(MessageError, match="asked for before, with other contents"):
            client.masked(other)


class TestAnotherSession:
    """A second sum over the same rows must say nothing that the first did not."""

    def after(self, first, second, settings=SETTINGS, tmp_path=None):
        """Client 1's store after a sum of `first`, then a sum of `second`."""
        settings = replace(settings, store=str(tmp_path))
        Sum(first, settings).run()
        return Sum(second, settings, session=OTHER, generation=1).keys()

    def test_of_the_same_rows_and_clients_is_made(self, tmp_path):
        clients = clients_of()
        first = Sum(clients).run().statistics
        again = self.after(clients, clients, tmp_path=tmp_path)
        for stage in SETTINGS.stages:
            again.stage(stage)
        held = again.collector.summed().statistics
        assert held.means.equal(first.means)
        assert held.scatter().equal(first.scatter())

    def test_of_other_rows_is_made(self, tmp_path):
        self.after(clients_of(seed=0), clients_of(seed=7), tmp_path=tmp_path)

    def test_of_rows_that_are_others_since_the_key_is_refused(self, tmp_path):
        """A client that is started anew within a session, a row in another's place."""
        clients = clients_of()
        one = self.after(clients, clients, tmp_path=tmp_path)
        x, y = clients[1]
        swapped = torch.cat([x[1:], rows(99, 1)[0]])
        again = Participant(1, swapped, y, replace(SETTINGS, store=str(tmp_path)))
        with pytest.raises(
            MessageError, match="have changed since it began this session"
        ):
            again.masked(one.collector.request("counts"))

    def test_with_one_row_more_or_less_is_refused(self, tmp_path):
        clients = clients_of()
        x, y = clients[1]
        with pytest.raises(MessageError, match="overlap with those of an earlier sum"):
            self.after(clients, {**clients, 1: (x[1:], y[1:])}, tmp_path=tmp_path)

    def test_with_another_label_is_refused(self, tmp_path):
        clients = clients_of()
        x, y = clients[1]
        other = {**clients, 1: (x, torch.cat([(y[:1] + 1) % 5, y[1:]]))}
        with pytest.raises(MessageError, match="overlap"):
            self.after(clients, other, tmp_path=tmp_path)

    def test_where_another_client_has_other_rows_is_refused_by_this_one(self, tmp_path):
        """The other one has forgotten what it sent. Nothing is answered: counts would
        say by how many rows of each class they differ."""
        clients = clients_of()
        x, y = clients[3]
        settings = replace(SETTINGS, store=str(tmp_path))
        Sum(clients, settings).run()
        for number in (2, 3):
            (tmp_path / f"client_{number:04d}.sums").unlink()
        other = {**clients, 3: (x[:-2], y[:-2])}
        again = Sum(other, settings, session=OTHER, generation=1).keys()
        with pytest.raises(MessageError, match=r"clients \[3\] have other rows"):
            again.stage("counts")
        assert not again.sent

    def test_with_another_threshold_is_refused(self, tmp_path):
        clients, settings = clients_of(), replace(SETTINGS, store=str(tmp_path))
        Sum(clients, settings).run()
        lower = replace(settings, min_samples=2)
        with pytest.raises(MessageError, match="with another threshold"):
            Sum(clients, lower, session=OTHER).keys()

    def test_a_client_more_or_less_is_refused_unless_the_settings_allow_it(
        self, tmp_path
    ):
        four = clients_of(sizes=(9, 9, 9, 9))
        three = {k: four[k] for k in (1, 2, 3)}
        with pytest.raises(MessageError, match="secure_sums_new_roster"):
            self.after(three, four, tmp_path=tmp_path)

    @pytest.mark.parametrize(("more", "allowed"), [(1, False), (2, False), (3, True)])
    def test_new_clients_come_three_at_a_time(self, tmp_path, more, allowed):
        clients = clients_of(sizes=(9,) * (3 + more))
        three = {k: clients[k] for k in (1, 2, 3)}
        settings = replace(SETTINGS, new_roster=True)
        if allowed:
            self.after(three, clients, settings, tmp_path).stage("counts")
            return
        with pytest.raises(MessageError, match="fewer than 3 clients"):
            self.after(three, clients, settings, tmp_path)

    def test_keys_alone_do_not_count_as_a_sum(self, tmp_path):
        four = clients_of(sizes=(9, 9, 9, 9))
        settings = replace(SETTINGS, store=str(tmp_path))
        Sum({k: four[k] for k in (1, 2, 3)}, settings).keys()
        Sum(four, settings, session=OTHER).keys().stage("counts")


def test_on_one_machine_one_line_has_the_keys_of_all(caplog, tmp_path):
    caplog.set_level("INFO")
    Sum(clients_of()).run()
    (line,) = [text for text in caplog.messages if "keys of the roster" in text]
    assert line.startswith("keys of the roster [1, 2, 3]: ")
    caplog.clear()
    Sum(clients_of(), replace(SETTINGS, store=str(tmp_path))).run()
    lines = [text for text in caplog.messages if "keys of the roster" in text]
    assert lines == [f"client {k}: {line}" for k in (1, 2, 3)]
