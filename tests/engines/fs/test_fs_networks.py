"""A network with BatchNorm and augmentation: the embedded engine's bits in FS."""

from __future__ import annotations

import pytest
from processes import check_same_head, numbers
from standalone import assert_same, outcome

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture
def network(tmp_path) -> list[str]:
    """Settings of two rounds on the bundled digits, one domain a client."""
    return [
        "data.type", "bundled_digits@ggeur",
        "data.splits", "[0.3, 0.1, 0.6]",
        "federate.client_num", "4",
        "federate.total_round_num", "2",
        "ggeur.steps", "[]",
        "ggeur.encoder.name", "image",
        "ggeur.encoder.image_size", "8",
        "ggeur.encoder.num_workers", "0",
        "ggeur.encoder.cache", str(tmp_path / "cache"),
        "ggeur.network.name", "digits_cnn",
        "ggeur.network.augment", "crop_flip",
        "dataloader.batch_size", "32",
        "train.optimizer.lr", "0.05",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        # FS takes new keys of a section in a file alone.
        ("train.scheduler.type", "StepLR", "train.scheduler.step_size", 1),
        ("ggeur.base_method", "moon", "federate.sample_client_num", 3),
        ("ggeur.base_method", "local"),
        ("ggeur.calibrate", "ccvr", "federate.make_global_eval", True),
    ],
    ids=str,
)
def test_standalone_ends_with_the_same_network(fs, config, network, settings):
    settings = [*network, *settings]
    assert_same(fs.run(*settings), Run(config(*settings)))


def test_distributed_ends_with_the_same_network(fleet, embedded, network):
    one = fleet(*network)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    expected = embedded(*network)
    check_same_head(server, clients, expected)
    assert numbers(server.results) == numbers(expected[0])


@pytest.mark.parametrize("engine", ["embedded", "standalone"])
def test_a_run_that_was_stopped_goes_on(fs, config, network, tmp_path, engine):
    kept = [*network, "federate.save_to", tmp_path / "checkpoint"]
    Run(config(*kept, "federate.total_round_num", 1)).follow(lambda record: None)
    on = [*network, "federate.restore_from", tmp_path / "checkpoint"]
    wanted = outcome(Run(config(*network)).follow(lambda record: None))
    if engine == "embedded":
        assert outcome(Run(config(*on)).follow(lambda record: None)) == wanted
    else:
        assert outcome(fs.run(*on).results) == wanted


@pytest.mark.parametrize("rule", ["median", "krum", "normbounding"])
def test_a_robust_mean_of_networks(fs, network, rule, monkeypatch):
    path = fs.file(*network)
    given = "krum_agg_num: 2, normbounding_norm_bound: 0.05"
    path.write_text(
        path.read_text()
        + f"aggregator: {{robust_rule: {rule}, BFT_args: {{{given}}}}}\n"
    )
    monkeypatch.setattr(fs, "file", lambda *words: path)
    run = fs.set_up().go()
    assert all((t >= 0).all() for n, t in run.model.items() if "running_var" in n)


def test_pixels_and_embeddings_are_told_apart(fs, config, network):
    on_embeddings = [
        "data.type",
        "digits_quickstart@ggeur",
        "ggeur.encoder.name",
        "hog",
    ]
    for begin in (lambda *s: Run(config(*s)), lambda *s: fs.run(*s)):
        with pytest.raises(ConfigError, match="the data are embeddings"):
            begin(*network, *on_embeddings)
