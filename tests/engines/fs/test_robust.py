"""FederatedScope's (FS's) robust aggregation rules in place of FedAvg's mean."""

import pytest
import torch
from standalone import merged

from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import named_tensors, num_parameters, to_vector

pytestmark = pytest.mark.slow

RULES = {
    "krum": "krum_agg_num: 3",
    "median": "",
    "trimmedmean": "trimmedmean_excluded_ratio: 0.2",
    "bulyan": "",
    "normbounding": "normbounding_norm_bound: 0.5",
}
SEVEN = ["federate.client_num", 7, "data.splitter", "iid", "data.splitter_args", [],
         "federate.sample_client_rate", 1.0, "federate.total_round_num", 1]  # fmt: skip


@pytest.fixture
def run_with(fs, monkeypatch):
    """Run with a rule; a list of what the clients sent up."""

    make = fs.file

    def run(rule, settings=SEVEN, hostile=1):
        file = make(*settings)
        section = f"{{{RULES.get(rule, '')}}}"
        file.write_text(
            file.read_text() + f"aggregator: {{robust_rule: {rule}, "
            f"byzantine_node_num: {hostile}, BFT_args: {section}}}\n"
        )
        monkeypatch.setattr(fs, "file", lambda *words: file)
        there = fs.set_up()
        updates = {}
        for number, client in there.runner.client.items():
            _listen(number, client.trainer, updates)
        there.go()
        return there, [updates[number] for number in sorted(updates)]

    return run


def _listen(number, trainer, updates) -> None:
    answer = trainer.answer
    model = trainer.client.model
    schema = MessageSchema(model.num_classes, model.in_features, num_parameters(model))

    def listening(kind, parts):
        sent = answer(kind, parts)
        if kind is TRAIN:
            update = ClientUpdate.from_bytes(sent[0], schema, f"client {number}")
            updates[number] = (trainer.client.aggregation_weight, update.params)
        return sent

    trainer.answer = listening


def start_of(there) -> torch.Tensor:
    """The head before round 1: drawn by the seed alone."""
    from federatedscope_ggeur.rng import torch_generator

    model = there.server.model
    now = to_vector(model)
    start = to_vector(model.reset(torch_generator(there.config.seed, "head")))
    assert not torch.equal(now, start)
    return start


def head_of(there) -> torch.Tensor:
    names = [name for name, _ in there.server.model.named_parameters()]
    return torch.cat([there.model[name].flatten() for name in names])


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_what_fs_s_aggregator_gives(run_with, rule):
    from federatedscope.core.auxiliaries.aggregator_builder import get_aggregator

    there, updates = run_with(rule)
    model = there.server.model
    start = start_of(there)
    by_hand = get_aggregator("fedavg", model=model, device="cpu", config=there.config)
    assert type(by_hand).__name__.lower() == f"{rule}aggregator"
    feedback = [
        (weight, {k: t.clone() for k, t in named_tensors(model, p - start).items()})
        for weight, p in updates
    ]
    expected = by_hand.aggregate({"client_feedback": feedback})
    assert there.model.keys() == expected.keys()
    assert all(there.model[name].equal(expected[name]) for name in expected)
    weights = torch.tensor([weight for weight, _ in updates])
    mean = weights @ torch.stack([params for _, params in updates]) / weights.sum()
    assert not torch.allclose(head_of(there), mean, atol=1e-6)


@pytest.mark.parametrize(
    ("rule", "arguments", "settings", "key"),
    [
        ("krum", "", [], r"aggregator\.BFT_args\.krum_agg_num: must be set"),
        ("trimmedmean", "", [], r"BFT_args\.trimmedmean_excluded_ratio: must be set"),
        ("normbounding", "", [], r"BFT_args\.normbounding_norm_bound: must be set"),
        ("bulyan", "", ["federate.sample_client_rate", -1], r"client_rate: must be"),
    ],
)  # fmt: skip
def test_what_a_rule_needs_is_said_by_name(run_with, rule, arguments, settings, key,
                                           monkeypatch):  # fmt: skip
    monkeypatch.setitem(RULES, rule, arguments)
    with pytest.raises(ConfigError, match=key):
        run_with(rule, settings=[*SEVEN, *settings])


def test_a_rule_stands_in_for_fedavg_s_mean_alone(fs):
    from federatedscope_ggeur.engines.fs.config import problems

    cfg = merged(fs.file(*SEVEN), ["aggregator.robust_rule", "median"])
    assert problems(cfg) == []
    for name, value in (
        *(("base_method", name) for name in METHODS if name != "fedavg"),
        *(("augmentation", name) for name in AUGMENTATIONS),
        ("closed_form", "lda"),
        ("calibrate", "ccvr"),
    ):
        other = cfg.clone()
        other.ggeur[name] = value
        wanted = f"aggregator.robust_rule: median works only with ggeur.{name}: "
        assert any(wanted in line for line in problems(other))


@pytest.mark.parametrize("rule", ["median", "krum", "trimmedmean", "bulyan"])
@pytest.mark.parametrize("hostile", [0, 1, 2])
def test_the_smallest_number_of_clients_is_said_and_enough(run_with, rule, hostile):
    least = (4 if rule == "bulyan" else 2) * hostile + 3
    few = [*SEVEN, "federate.client_num", least - 1]
    with pytest.raises(ConfigError, match=rf"client_num: must be {least} at least"):
        run_with(rule, settings=few, hostile=hostile)
    if hostile == 0:
        there, updates = run_with(
            rule, settings=[*SEVEN, "federate.client_num", least], hostile=0
        )
        assert len(updates) == least
        assert torch.isfinite(head_of(there)).all()


@pytest.mark.parametrize("drawn", [3, 4])
def test_too_few_updates_for_a_rule_are_refused(run_with, drawn):
    """Seven clients are enough for one hostile one, as many as are drawn are not."""
    settings = [*SEVEN, "federate.sample_client_rate", drawn / 7]
    said = rf"round 1: {drawn} updates, but aggregator\.robust_rule needs at least 5"
    with pytest.raises(GGEURError, match=said):
        run_with("median", settings=settings)
