"""Clients that leave a federation and come back, at any time."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from by_bytes import Federation, make_client_data
from carrier import SIZES, carrier, garbage, late, lost

from federatedscope_ggeur.federation.exchanges.training.exchange import train_broadcast
from federatedscope_ggeur.methods import FedMix


def own_set(carried, k):
    """The set that client `k` trains on, as one vector."""
    parts = carried.federation.clients[k].recipe.draw(1)
    return torch.cat([part.double().flatten() for part in parts])


class TestComingBack:
    @pytest.fixture
    def carried(self):
        """Client 2 is lost in round 1."""
        carried = carrier(FedMix(0.1), quorum=2)
        carried.round0()
        self.before = own_set(carried, 2)
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
        everyone = [1, 2, 3, 4]
        assert carried.asked(start=start) == [
            ("prepare", [2]),
            ("init_broadcast", [2]),
            ("train", everyone),
        ]
        assert record.clients == everyone
        assert torch.equal(own_set(carried, 2), self.before)
        carried.requests = carried.requests[start:]
        assert record.bytes_down == carried.bytes_down(
            "prepare", "init_broadcast", "train"
        )

    def test_its_updates_are_those_it_would_have_sent(self, carried):
        carried.restart(2)
        carried.membership.come_back(2)
        twin = deepcopy(carried.server)
        stayed = Federation(make_client_data(SIZES), FedMix(0.1), steps=(1, 2)).round0()
        carried.rounds(2)
        wanted = stayed.fit(2, train_broadcast(twin, 2)).to_bytes()
        sent = [
            r for kind, n, k, r in carried.answers if (kind, n, k) == ("train", 2, 2)
        ]
        assert sent == [(wanted,)]

    def test_with_other_data_it_is_refused_by_its_weight(self, carried):
        carried.restart(2, rows=3)
        carried.membership.come_back(2)
        record = carried.rounds(2)[0]
        assert record.clients == [1, 3, 4]
        assert "field 'aggregation_weight'" in carried.membership.absent[2]
        assert [client for client, _ in carried.dismissed] == [2]

    def test_a_late_one_keeps_what_it_was_sent(self):
        carried = carrier(FedMix(0.1), quorum=2)
        carried.round0()
        carried.faults["train", 1, 2] = late
        carried.rounds(1, 2)
        assert carried.membership.absent == {2: "no answer within 5 s"}
        carried.membership.come_back(2)
        start = len(carried.requests)
        carried.rounds(4)
        assert carried.asked(start=start) == [("train", [1, 2, 3, 4])]

    def test_one_that_missed_the_statistics_takes_part_later(self):
        carried = carrier(quorum=2)
        carried.faults["statistics", 0, 2] = lost
        assert carried.round0().clients == [1, 3, 4]
        carried.membership.come_back(2)
        assert carried.rounds(1)[0].clients == [1, 2, 3, 4]
        assert carried.asked("statistics") == [
            ("statistics", [1, 2]),
            ("statistics", [3, 4]),
        ]


class TestComingAndGoingAtAnyTime:
    """What engines report while answers are awaited."""

    def returns(self, carried, k):
        carried.membership.leave(k, "connection lost")
        carried.restart(k)
        carried.membership.come_back(k)

    @pytest.mark.parametrize(
        "when", [("prepare", 0), ("init_broadcast", 0), ("statistics", 0)]
    )
    def test_back_during_round_0(self, when):
        carried = carrier(FedMix(0.1), quorum=2, window=1)
        carried.meanwhile[when] = partial(self.returns, carried, 1)
        carried.round0()
        carried.meanwhile.clear()
        assert carried.rounds(1)[0].clients == [1, 2, 3, 4]

    def test_back_during_round_0_without_its_answer(self):
        carried = carrier(quorum=2, window=1)
        carried.faults["prepare", 0, 1] = lost
        carried.meanwhile["prepare", 0] = partial(self.returns, carried, 1)
        assert carried.round0().clients == [2, 3, 4]
        carried.faults.clear()
        carried.meanwhile.clear()
        assert carried.rounds(1)[0].clients == [1, 2, 3, 4]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "when", [("statistics", 0), ("prepare", 0), ("train", 1), ("train", 3)]
    )
    def test_back_without_its_answer_it_is_asked_once_more(self, when):
        """And the run is the undisturbed one to the bit, at the default quorum."""
        undisturbed = carrier(FedMix(0.1), window=4)
        undisturbed.run(3)
        carried = carrier(FedMix(0.1), window=4)
        carried.faults[(*when, 1)] = lost

        def back_in_time():
            del carried.meanwhile[when], carried.faults[(*when, 1)]
            self.returns(carried, 1)

        carried.meanwhile[when] = back_in_time
        carried.run(3)
        assert torch.equal(carried.server.params, undisturbed.server.params)

    @pytest.mark.slow
    @pytest.mark.parametrize("proven", [False, True])
    def test_garbage_of_another_who_had_its_number(self, proven):
        """Where numbers prove nothing, what an earlier connection said is not held
        against the one that is there now: it is asked, as if nothing had been said."""
        undisturbed = carrier(FedMix(0.1), window=4)
        undisturbed.run(3)
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
        same = torch.equal(carried.server.params, undisturbed.server.params)
        assert same != proven

    def test_gone_during_round_0_after_its_answer(self):
        carried = carrier(quorum=2, window=4)
        carried.meanwhile["prepare", 0] = partial(
            carried.membership.leave, 2, "power cut"
        )
        assert carried.round0().clients == [1, 3, 4]
        carried.meanwhile.clear()
        carried.restart(2)
        carried.membership.come_back(2)
        assert carried.rounds(1)[0].clients == [1, 2, 3, 4]

    def test_back_while_another_is_prepared_again(self):
        carried = carrier(FedMix(0.1), quorum=2)
        carried.round0()
        for k in (1, 2):
            carried.membership.leave(k, "connection lost")
            carried.restart(k)
        carried.membership.come_back(1)
        carried.meanwhile["prepare", 0] = partial(carried.membership.come_back, 2)
        assert carried.rounds(1)[0].clients == [1, 3, 4]
        carried.meanwhile.clear()
        assert carried.rounds(2)[0].clients == [1, 2, 3, 4]

    def test_back_while_it_is_prepared_again(self):
        carried = carrier(FedMix(0.1), quorum=2)
        carried.round0()
        for k in (1, 2):
            self.returns(carried, k)
        carried.faults["prepare", 0, 1] = lost
        carried.meanwhile["prepare", 0] = partial(self.returns, carried, 1)
        start = len(carried.requests)
        assert carried.rounds(1)[0].clients == [2, 3, 4]
        assert carried.asked("init_broadcast", start=start) == [("init_broadcast", [2])]

    def test_back_before_the_others_have_answered(self):
        carried = carrier(quorum=4)
        carried.round0()
        carried.faults["train", 1, 2] = lost
        carried.meanwhile["train", 1] = partial(self.returns, carried, 2)
        assert carried.rounds(1)[0].clients == [1, 3, 4]
        start = len(carried.requests)
        assert carried.rounds(2)[0].clients == [1, 2, 3, 4]
        assert carried.asked(start=start)[0] == ("prepare", [2])
