"""The course of a federation whose clients fail."""

from copy import deepcopy
from functools import partial

import carrier as faults
import pytest
import torch
from carrier import after_round_0, carrier, garbage, late, lost

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.course.coordinator import Plan
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingExchange
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.methods import FedMix, Local

REFUSED = {
    faults.garbage: "header",
    faults.nothing: "parts",
    faults.twice: "parts",
    faults.of_another_round: "round",
}


EVERYONE = [1, 2, 3, 4]


class TestWithoutFaults:
    @pytest.mark.parametrize("by_server", [False, True])
    def test_clients_leave_their_own_models_where_they_score_them(self, by_server):
        plan = Plan(2, None, by_server)
        assert plan.leaves_own(Local()) is not by_server
        assert not plan.leaves_own(FedMix(0.1))

    def test_round_0_asks_in_windows_and_prepares_everyone(self):
        carried = carrier()
        record = carried.round0()
        windows = [[1, 2], [3, 4]]
        assert carried.asked("statistics") == [("statistics", w) for w in windows]
        assert carried.asked("prepare") == [("prepare", w) for w in windows]
        assert record.clients == EVERYONE

    def test_all_get_the_one_object_of_geometry_and_broadcast(self):
        carried = after_round_0(FedMix(0.1))
        carried.rounds(1)
        for kind in ("prepare", "init_broadcast", "train"):
            requests = [r for r in carried.requests if r.kind.name == kind]
            firsts = [parts[0] for r in requests for parts in r.parts.values()]
            assert len(firsts) == 4
            assert all(part is firsts[0] for part in firsts)

    @pytest.mark.parametrize("server_evaluates", [True, False])
    def test_the_bytes_counted_are_those_sent(self, server_evaluates):
        carried = carrier(FedMix(0.1), plan={"server_evaluates": server_evaluates})
        round0 = carried.round0()
        up = sum(round0.statistics_bytes_up.values())
        assert up == carried.bytes_up("statistics")
        assert round0.prepare_bytes_up == carried.bytes_up("prepare")
        down = round0.geometry_bytes_down + round0.prototypes_bytes_down
        assert down == carried.bytes_down("prepare")
        down = round0.init_broadcast_bytes_down
        assert down == carried.bytes_down("init_broadcast") > 0
        records = carried.rounds(1, 2, 3)
        up = sum(record.bytes_up for record in records)
        assert up == carried.bytes_up("train", "evaluate")
        down = sum(record.bytes_down for record in records)
        assert down == carried.bytes_down("train", "evaluate")
        assert bool(carried.asked("evaluate")) is not server_evaluates


class TestRefusedAnswers:
    """What `Exchange` does not take."""

    @pytest.mark.parametrize(("fault", "field"), REFUSED.items())
    def test_a_small_quorum_goes_on_with_the_others(self, fault, field):
        carried = after_round_0(quorum=3)
        carried.faults["train", 1, 2] = fault
        twin = deepcopy(carried.coordinator)
        record = carried.rounds(1)[0]
        assert record.clients == [1, 3, 4]
        replies = {k: r for kind, _, k, r in carried.answers if kind == "train"}
        updates = [
            ClientUpdate.from_bytes(replies[k][0], twin.server.schema, f"client {k}")
            for k in (1, 3, 4)
        ]
        twin.find(TrainingExchange).step(1, updates)
        assert torch.equal(carried.server.params, twin.server.params)
        ((client, reason),) = carried.dismissed
        assert client == 2
        assert f"client 2 refused: field '{field}" in reason
        assert carried.membership.absent == {2: reason}
        strikes = [carried.membership.conduct.strike(2, "again") for _ in range(2)]
        assert not strikes[0]
        assert "barred after 3 invalid messages" in strikes[1]

    def test_the_default_quorum_ends_the_run(self):
        carried = after_round_0()
        carried.faults["train", 1, 2] = garbage
        message = r"round 1, train: 3 of 4 .*quorum.* client 2: .*field 'header"
        with pytest.raises(GGEURError, match=message) as caught:
            carried.rounds(1)
        assert isinstance(caught.value.__cause__, MessageError)
        assert len(carried.dismissed) == 1

    def test_refused_statistics_stay_out(self):
        carried = carrier(quorum=3)
        carried.faults["statistics", 0, 2] = garbage
        record = carried.round0()
        assert record.clients == [1, 3, 4]
        assert record.statistics_bytes_up["2"] == len(b"garbage")
        assert int(carried.server.merged.statistics.counts.sum()) == 20 + 25 + 15
        assert carried.server.merged.rows.keys() == {1, 3, 4}
        assert carried.asked("prepare") == [("prepare", [1, 3]), ("prepare", [4])]


class TestAbsence:
    @pytest.mark.parametrize(
        ("kind", "number"),
        [("statistics", 0), ("prepare", 0), ("train", 3), ("evaluate", 3)],
    )
    def test_the_default_quorum_names_who_why_and_when(self, kind, number):
        carried = carrier()
        carried.faults[kind, number, 3] = lost
        message = (
            rf"round {number}, {kind}: 3 of 4 clients.*ggeur\.quorum needs 4.*"
            "client 3: connection lost"
        )
        with pytest.raises(GGEURError, match=message):
            carried.run(3)
        assert carried.dismissed == []

    def test_a_reply_that_the_carrier_forgot_is_none(self):
        carried = after_round_0(quorum=1)
        requests = carried.coordinator.round(1)
        replies = dict.fromkeys(next(requests).parts, (b"",))
        del replies[4]
        with pytest.raises(GGEURError, match="client 4: no answer"):
            requests.send(replies)

    def test_nobody_is_asked_below_the_quorum(self):
        for quorum, gone, said in (
            (3, [1, 2], r"round 1, .*client 1: power cut; client"),
            (1, EVERYONE, "0 of 4 clients are left"),
        ):
            carried = after_round_0(quorum=quorum)
            for k in gone:
                carried.membership.leave(k, "power cut")
            before = len(carried.requests)
            with pytest.raises(GGEURError, match=said):
                carried.rounds(1)
            assert len(carried.requests) == before

    def test_a_quorum_of_more_than_there_are(self):
        with pytest.raises(GGEURError, match=r"4 of 4 .*needs 5; lower it"):
            carrier(quorum=5).round0()

    def test_draws_are_among_those_present(self):
        carried = after_round_0(sizes=(9,) * 6, quorum=1, sample_client_num=3)
        carried.membership.leave(2, "power cut")
        drawn = [record.clients for record in carried.rounds(*range(1, 9))]
        assert all(len(clients) == 3 and 2 not in clients for clients in drawn)
        assert drawn == [carried.training.sample(n, {2}) for n in range(1, 9)]

    def test_a_round_that_loses_all_it_drew_leaves_the_head_as_it_was(self, caplog):
        carried = after_round_0(sizes=(9,) * 5, quorum=2, sample_client_num=2)
        drawn = carried.training.sample(1)
        for k in drawn:
            carried.faults["train", 1, k] = lost
        before = carried.server.params.clone()
        (first,) = carried.rounds(1)
        assert first.clients == []
        assert torch.equal(carried.server.params, before)
        (second,) = carried.rounds(2)
        assert "no client trained" in caplog.text
        assert len(second.clients) == 2
        assert not set(second.clients) & set(drawn)
        assert not torch.equal(carried.server.params, before)

    def test_an_absent_client_s_test_rows_are_not_scored(self):
        carried = after_round_0(quorum=1)
        carried.faults["evaluate", 3, 2] = lost
        record = carried.rounds(3)[0]
        held = {name: value is not None for name, value in record.accuracy.items()}
        assert held == {f"domain {k}": k != 2 for k in (1, 2, 3, 4)}
        present = [value for value in record.accuracy.values() if value is not None]
        assert record.avg == pytest.approx(sum(present) / 3)


def test_unseen_clients_alone_do_not_go_on():
    carried = after_round_0(quorum=1, unseen=2, plan={"server_evaluates": True})
    for k in carried.server.participants:
        carried.faults["train", 1, k] = lost
    message = "2 of 4 clients are left, but none of them trains"
    with pytest.raises(GGEURError, match=message):
        carried.rounds(1)


# Clients that leave a federation and come back, at any time.


def set_of_client_2(carried):
    """The set that client 2 trains on, as one vector."""
    parts = carried.federation.clients[2].recipe.draw(1)
    return torch.cat([part.double().flatten() for part in parts])


class TestComingBack:
    @pytest.fixture
    def carried(self):
        """Client 2 is lost in round 1."""
        carried = after_round_0(FedMix(0.1), quorum=2)
        self.before = set_of_client_2(carried)
        carried.faults["train", 1, 2] = lost
        carried.rounds(1)
        return carried

    def test_it_is_asked_for_nothing_while_it_is_away(self, carried):
        start = len(carried.requests)
        carried.rounds(2, 3)
        asked = carried.asked(start=start)
        assert asked == [("train", [1, 3, 4]), ("train", [1, 3, 4]), asked[-1]]
        assert asked[-1] == ("evaluate", [1, 3, 4])

    def test_it_is_prepared_again_before_it_trains(self, carried):
        carried.restart(2)
        carried.membership.come_back(2)
        start = len(carried.requests)
        record = carried.rounds(2)[0]
        assert carried.asked(start=start) == [
            ("prepare", [2]),
            ("init_broadcast", [2]),
            ("train", EVERYONE),
        ]
        assert record.clients == EVERYONE
        assert torch.equal(set_of_client_2(carried), self.before)
        carried.requests = carried.requests[start:]
        assert record.bytes_down == carried.bytes_down(
            "prepare", "init_broadcast", "train"
        )

    def test_with_other_data_it_is_refused_by_its_weight(self, carried):
        carried.restart(2, rows=3)
        carried.membership.come_back(2)
        record = carried.rounds(2)[0]
        assert record.clients == [1, 3, 4]
        assert "field 'aggregation_weight'" in carried.membership.absent[2]
        assert [client for client, _ in carried.dismissed] == [2]

    def test_a_late_one_keeps_what_it_was_sent(self):
        carried = after_round_0(FedMix(0.1), quorum=2)
        carried.faults["train", 1, 2] = late
        carried.rounds(1, 2)
        assert carried.membership.absent == {2: "no answer within 5 s"}
        carried.membership.come_back(2)
        start = len(carried.requests)
        carried.rounds(4)
        assert carried.asked(start=start) == [("train", EVERYONE)]

    def test_one_that_missed_the_statistics_takes_part_later(self):
        carried = carrier(quorum=2)
        carried.faults["statistics", 0, 2] = lost
        assert carried.round0().clients == [1, 3, 4]
        carried.membership.come_back(2)
        assert carried.rounds(1)[0].clients == EVERYONE
        assert carried.asked("statistics") == [
            ("statistics", [1, 2]),
            ("statistics", [3, 4]),
        ]


class TestComingAndGoingAtAnyTime:
    """What engines report while answers are awaited."""

    @pytest.fixture(scope="class")
    def undisturbed(self):
        whole = carrier(FedMix(0.1), window=4)
        whole.run(3)
        return whole.server.params

    def returns(self, carried, k):
        carried.membership.leave(k, "connection lost")
        carried.restart(k)
        carried.membership.come_back(k)

    @pytest.mark.parametrize(
        ("kind", "fault", "comes_back", "first"),
        [
            ("prepare", None, True, [2, 3, 4]),
            ("init_broadcast", None, True, [2, 3, 4]),
            ("statistics", None, True, EVERYONE),
            ("prepare", lost, True, [2, 3, 4]),
            ("prepare", None, False, [2, 3, 4]),
        ],
    )
    def test_gone_during_round_0_and_back_then_or_later(
        self, kind, fault, comes_back, first
    ):
        carried = carrier(FedMix(0.1), quorum=2, window=1)
        carried.faults["prepare", 0, 1] = fault
        leave = partial(carried.membership.leave, 1, "power cut")
        returns = partial(self.returns, carried, 1)
        carried.meanwhile[kind, 0] = returns if comes_back else leave
        assert carried.round0().clients == first
        carried.faults.clear()
        carried.meanwhile.clear()
        if not comes_back:
            returns()
        assert carried.rounds(1)[0].clients == EVERYONE

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "when", [("statistics", 0), ("prepare", 0), ("train", 1), ("train", 3)]
    )
    def test_back_without_its_answer_it_is_asked_once_more(self, when, undisturbed):
        """And the run is the undisturbed one to the bit, at the default quorum."""
        carried = carrier(FedMix(0.1), window=4)
        carried.faults[(*when, 1)] = lost

        def back_in_time():
            del carried.meanwhile[when], carried.faults[(*when, 1)]
            self.returns(carried, 1)

        carried.meanwhile[when] = back_in_time
        carried.run(3)
        assert torch.equal(carried.server.params, undisturbed)

    @pytest.mark.slow
    @pytest.mark.parametrize("proven", [False, True])
    def test_garbage_of_another_who_had_its_number(self, proven, undisturbed):
        """Where numbers prove nothing, what an earlier connection said is not held
        against the one that is there now: it is asked, as if nothing had been said."""
        carried = carrier(FedMix(0.1), quorum=3, window=4)
        members = carried.membership
        members.proven = proven
        carried.faults["train", 1, 2] = garbage

        def another_comes():
            del carried.meanwhile["train", 1], carried.faults["train", 1, 2]
            members.note_answer(2)
            members.disconnect(2)
            self.returns(carried, 2)

        carried.meanwhile["train", 1] = another_comes
        carried.run(3)
        assert [k for k, _ in carried.dismissed] == ([2] if proven else [])
        assert torch.equal(carried.server.params, undisturbed) != proven

    def test_back_while_it_is_prepared_again(self):
        carried = after_round_0(FedMix(0.1), quorum=2)
        for k in (1, 2):
            self.returns(carried, k)
        carried.faults["prepare", 0, 1] = lost
        carried.meanwhile["prepare", 0] = partial(self.returns, carried, 1)
        start = len(carried.requests)
        assert carried.rounds(1)[0].clients == [2, 3, 4]
        assert carried.asked("init_broadcast", start=start) == [("init_broadcast", [2])]

    def test_back_before_the_others_have_answered(self):
        carried = after_round_0(quorum=4)
        carried.faults["train", 1, 2] = lost
        carried.meanwhile["train", 1] = partial(self.returns, carried, 2)
        assert carried.rounds(1)[0].clients == [1, 3, 4]
        start = len(carried.requests)
        assert carried.rounds(2)[0].clients == EVERYONE
        assert carried.asked(start=start)[0] == ("prepare", [2])
