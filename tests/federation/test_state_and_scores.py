"""What a client keeps and what its scores and its silence count for."""

import pytest
import torch
from by_bytes import Federation, make_client_data

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import Score, TrainingSettings
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.methods import FedAvg, LocalHooks


class KeepsRows(FedAvg):
    """A method whose client state is made of the rows it was trained on."""

    def local(self, context):
        return LocalHooks(finish=lambda outcome: ({}, {"rows": outcome.features[:2]}))


def test_client_state_is_the_client_s_own_however_sets_are_kept():
    kept, redrawn = (
        Federation(
            make_client_data(), method=KeepsRows(), steps=(1,), memory=memory
        ).round0()
        for memory in (1e9, 0)
    )
    for federation in (kept, redrawn):
        federation.step(1, federation.train(1))
        federation.train(2)
    for k, client in kept.clients.items():
        assert torch.equal(client.state["rows"], redrawn.clients[k].state["rows"])


def test_a_client_that_drop_last_leaves_nothing_to_has_no_say(caplog):
    training = TrainingSettings(batch_size=10_000, drop_last=True)
    federation = Federation(make_client_data(), training=training)
    for k in federation.clients:
        federation.add_prepare_reply(federation.prepare(k))
    assert "drop_last" in caplog.text
    with pytest.raises(GGEURError, match="no client has any rows to train on"):
        federation.augmentation.start()


def test_scores_are_added_up_by_domain_and_checked():
    federation = Federation(make_client_data())
    server = federation.server
    reports = [
        ScoreReport(k, 3, {"test": Score(k, 2 * k, 0.5)}) for k in server.client_domains
    ]
    scores = federation.aggregate_scores(3, reversed(reports))
    assert scores.keys() == set(server.client_domains.values())
    for domain, score in scores.items():
        members = [k for k, found in server.client_domains.items() if found == domain]
        assert score.correct == sum(members)
        assert score.total == 2 * sum(members)
    for bad in (ScoreReport(99, 3, {}), ScoreReport(1, 2, {})):
        with pytest.raises(MessageError, match=f"client {bad.client} "):
            federation.aggregate_scores(3, [*reports, bad])


def test_rounds_are_scored_every_so_often_and_at_the_end():
    server = Federation(make_client_data()).server
    assert [r for r in range(1, 11) if server.evaluates(r)] == [3, 6, 9, 10]
