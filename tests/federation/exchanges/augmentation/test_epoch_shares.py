"""Runs on a share of the augmented set."""

import pytest

from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.reporting import numbers

SHARE = ["ggeur.epoch_share", 0.25, "dataloader.batch_size", 8]
WHOLE = ["dataloader.batch_size", 8]
TRAINING = "training of the median client in a round: "


def carried_out(cfg):
    going = Run(cfg)
    return going, going.follow(lambda record: None)


def clients_of(cfg):
    going, _ = carried_out(cfg)
    return going.engine.clients.values()


def test_clients_train_on_less_and_count_as_much(config):
    some, all_ = clients_of(config(*SHARE)), clients_of(config(*WHOLE))
    for part, whole in zip(some, all_):
        assert part.recipe.rows < 0.3 * whole.recipe.rows
        assert part.recipe.whole == whole.recipe.rows
        assert part.aggregation_weight == whole.aggregation_weight
        assert part.kept_set is None
        assert whole.kept_set is not None


@pytest.mark.parametrize("space", ["raw", "standard"])
@pytest.mark.parametrize(("own", "momentum"), [(0.0, 0.9), (0.95, 0.95)])
def test_they_go_as_far(config, space, own, momentum):
    settings = ["ggeur.space", space, "train.optimizer.momentum", own]
    settings += ["train.scheduler.type", "StepLR", "train.scheduler.step_size", 1]
    settings += ["train.scheduler.gamma", 0.5]
    parts = clients_of(config(*settings, *SHARE))
    for part, whole in zip(parts, clients_of(config(*settings, *WHOLE))):
        for number in (1, 2):
            on_part, on_whole = part.training(number), whole.training(number)
            reached = on_part.reach(part.recipe.rows)
            wanted = on_whole.reach(whole.recipe.rows)
            assert reached == pytest.approx(wanted, rel=1e-9)
            assert on_part.optimizer.momentum == momentum
        first, second = (part.training(number).reach(9) for number in (1, 2))
        assert first == pytest.approx(2 * second)


def test_methods_are_told_of_the_rate_that_is_taken(config, monkeypatch):
    """SCAFFOLD divides by it."""
    from federatedscope_ggeur.methods import METHODS

    told = []
    whole = METHODS["scaffold"].local

    def local(self, context):
        told.append((context.client, context.optimizer.lr))
        return whole(self, context)

    monkeypatch.setattr(METHODS["scaffold"], "local", local)
    settings = ["ggeur.base_method", "scaffold", "ggeur.scaffold.server_lr", 0.25]
    clients = clients_of(config(*SHARE, *settings))
    rates = {client.number: client.training(1).optimizer.lr for client in clients}
    assert dict(told) == rates
    assert min(rates.values()) > 3 * 0.01


def test_a_share_of_one_changes_no_bit(config):
    one, same = run(config()), run(config("ggeur.epoch_share", 1))
    assert numbers(one) == numbers(same)
    assert not any("epoch_share" in note for note in one.notes)


def test_the_start_says_how_long_clients_train_and_whose_run_it_is_not(config):
    some, whole = Run(config(*SHARE)), Run(config(*WHOLE))
    said = [next(x for x in r.describe() if TRAINING in x) for r in (some, whole)]
    fewer, all_ = (int(x.removeprefix(TRAINING).split()[0]) for x in said)
    assert fewer < 0.3 * all_
    assert "rate 0.01," in said[1]
    assert "rate 0.01," not in said[0]
    (note,) = [note for note in some.notes if "epoch_share" in note]
    assert "differs from the paper" in note
    no_rounds = Run(config("ggeur.closed_form", "lda"))
    assert not any(TRAINING in line for line in no_rounds.describe())


def test_the_forecast_is_of_the_share(config):
    cfg = config(*SHARE, "federate.make_global_eval", True)
    found = forecast(set_up(cfg))
    going, results = carried_out(cfg)
    rows = {c.number: c.recipe.rows for c in going.engine.clients.values()}
    assert found.rows == rows
    assert not found.same_every_round
    total = results.final.bytes_up, results.final.bytes_down
    assert (found.total.up, found.total.down) == total
