"""States on clients when updates are lost, or states themselves."""

import logging

import pytest
import torch
from by_bytes import Federation, make_client_data
from federations import LOCAL, federate

from federatedscope_ggeur.methods import FedDyn, Scaffold

METHODS = {"c": Scaffold(0.5), "h": FedDyn(0.5)}


@pytest.mark.parametrize(("name", "method"), METHODS.items(), ids=METHODS)
class TestAcknowledgedRounds:
    @pytest.fixture
    def federation(self, method):
        return federate(method, rounds=0)

    def lose(self, federation, number, *clients):
        """A round whose updates of these clients do not arrive."""
        updates = federation.train(number)
        arrived = [u for u in updates if u.client not in clients]
        federation.step(number, arrived)

    def mean_of_counted(self, federation, name):
        """The weighted mean of what the clients go on from."""
        sizes = {k: len(client.labels) for k, client in federation.clients.items()}
        acknowledged_rounds, mean = (
            federation.server.method_state["acknowledged_rounds"],
            0.0,
        )
        for k, client in federation.clients.items():
            taken = acknowledged_rounds[k] == client.state["round"]
            share = sizes[k] / sum(sizes.values())
            mean = mean + share * client.state["after" if taken else "before"]
        return mean

    def test_the_sum_holds_when_updates_are_lost(self, federation, name):
        for number, clients in enumerate([(2,), (), (1, 2), (2,), (3,)], start=1):
            self.lose(federation, number, *clients)
            torch.testing.assert_close(
                federation.server.method_state[name],
                self.mean_of_counted(federation, name),
                rtol=1e-4,
                atol=1e-6,
            )
        assert federation.server.method_state["acknowledged_rounds"].tolist() == [
            0,
            5,
            5,
            4,
        ]

    def test_the_sum_holds_when_a_client_joins_late(self, method, name):
        federation = Federation(make_client_data((20, 30, 25)), method, training=LOCAL)
        for k in (1, 2):
            federation.add_prepare_reply(federation.prepare(k))
        federation.augmentation.start(absent={3})
        federation.training.sample = lambda _: [1, 2]
        self.lose(federation, 1)
        del federation.training.sample
        federation.add_prepare_reply(federation.prepare(3))
        for number in (2, 3):
            self.lose(federation, number)
            torch.testing.assert_close(
                federation.server.method_state[name],
                self.mean_of_counted(federation, name),
                rtol=1e-4,
                atol=1e-6,
            )

    def test_a_lost_round_leaves_no_trace(self, federation, name):
        self.lose(federation, 1)
        self.lose(federation, 2, 2)
        before = federation.clients[2].state["before"]
        self.lose(federation, 3, 2)
        assert torch.equal(federation.clients[2].state["before"], before)
        assert before.abs().max() > 0

    def test_a_client_that_lost_its_state_says_so(self, federation, name, caplog):
        self.lose(federation, 1)
        federation.clients[2].states = {}
        with caplog.at_level(logging.WARNING):
            federation.train(2)
        assert "client 2 has lost its state of round 1" in caplog.text
        assert "client 1" not in caplog.text
