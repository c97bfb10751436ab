"""Which clients train in a round, and in which windows they are asked."""

import pytest
import torch
from by_bytes import Federation, make_client_data

from federatedscope_ggeur.federation.sampling import windows


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_windows_hold_everyone_once_in_order(size):
    numbers = [2, 3, 5, 7, 11]
    groups = windows(numbers, size)
    assert [number for group in groups for number in group] == numbers
    assert all(len(group) == size for group in groups[:-1])
    assert 1 <= len(groups[-1]) <= size
    assert list(windows([], size)) == []


class TestSampling:
    def drawn(self, wanted, rounds=20, seed=0):
        federation = Federation(
            make_client_data((5,) * 9), sample_client_num=wanted, seed=seed
        )
        return [federation.training.sample(number) for number in range(1, rounds + 1)]

    @pytest.mark.parametrize("wanted", [1, 4, 8])
    def test_as_many_as_wanted_ascending_and_distinct(self, wanted):
        for drawn in self.drawn(wanted):
            assert len(drawn) == wanted
            assert drawn == sorted(set(drawn))
            assert set(drawn) <= set(range(1, 10))
            assert all(type(number) is int for number in drawn)

    @pytest.mark.parametrize("wanted", [9, 20])
    def test_everyone_where_as_many_are_wanted(self, wanted):
        assert self.drawn(wanted) == 20 * [list(range(1, 10))]

    def test_depends_on_seed_and_round_alone(self):
        assert self.drawn(4) == self.drawn(4)
        assert self.drawn(4) != self.drawn(4, seed=1)
        assert len({tuple(drawn) for drawn in self.drawn(4)}) > 10

    def test_everyone_is_drawn_now_and_then(self):
        assert set().union(*self.drawn(2, rounds=60)) == set(range(1, 10))

    def test_only_those_drawn_train_and_change_the_weights(self):
        federation = Federation(make_client_data((9,) * 5), sample_client_num=2)
        federation.round0()
        updates = federation.train(1)
        assert [u.client for u in updates] == federation.training.sample(1)
        federation.step(1, updates)
        params = [u.params.double() for u in updates]
        torch.testing.assert_close(
            federation.server.params, ((params[0] + params[1]) / 2).float()
        )
