"""Runs that diverge and stay finite, on the embedded engine."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from every_method import ON_HEADS, words

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.reporting import Results, results_table

RAW = ["ggeur.space", "raw", "train.optimizer.lr", "0.01"]
WILD = ("train.optimizer.lr", 10_000)


def stopped_after(cfg, last):
    for record in Run(cfg).engine.run():
        if getattr(record, "round", 0) == last:
            return


def test_a_rate_far_too_high_is_named_in_the_log_the_results_and_the_table(
    config, caplog
):
    with caplog.at_level(logging.WARNING):
        results = run(config(*WILD))
    found = results.diverged
    assert (found.round, found.rate) == (1, 10_000)
    assert found.client in (1, 2, 3)
    assert found.largest_weight > 1000
    (line,) = (text for text in caplog.messages if "diverged" in text)
    assert f"in round 1 (client {found.client}, train.optimizer.lr 10000)" in line
    assert line.startswith(results_table(results).splitlines()[-1])
    assert Results.from_json(results.to_json()).diverged == found


def test_each_client_s_own_head_may_diverge_too(config):
    found = run(config("ggeur.base_method", "local", *WILD)).diverged
    assert found.client in (1, 2, 3)
    assert found.largest_weight is None


def test_the_server_s_step_may_be_what_diverges(config):
    settings = ("ggeur.base_method", "scaffold", "ggeur.scaffold.server_lr", 100_000)
    found = run(config(*settings)).diverged
    assert (found.round, found.client) == (1, None)


@pytest.mark.slow
@pytest.mark.parametrize("last", [0, 1, 3])
@pytest.mark.parametrize(
    ("settings", "since"),
    [
        (["train.optimizer.lr", "10000"], 1),
        (
            [
                *("ggeur.space", "raw", "train.optimizer.lr", "1.2"),
                *("ggeur.base_method", "fedproto"),
            ],
            2,
        ),
    ],
)
def test_a_restored_run_says_the_same(quickstart, tmp_path, settings, since, last):
    path = str(tmp_path / "checkpoint")
    settings = [*settings, "federate.total_round_num", "4"]
    whole = run(load_config(quickstart, settings)).diverged
    assert whole.round >= since
    stopped_after(load_config(quickstart, [*settings, "federate.save_to", path]), last)
    cfg = load_config(quickstart, [*settings, "federate.restore_from", path])
    assert run(cfg).diverged == whole


@pytest.mark.parametrize("method", ON_HEADS)
def test_no_method_diverges_as_it_is(config, method):
    assert run(config(*words(method))).diverged is None


@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"],
        ["ggeur.closed_form", "ridge", "ggeur.init", "closed_form"],
        ["ggeur.closed_form", "lda"],
        ["ggeur.calibrate", "ccvr"],
        ["train.optimizer.lr", 1],
        ["eval.freq", 2],
    ],
    ids=str,
)
def test_healthy_runs_raise_no_alarm(config, settings):
    assert run(config(*settings)).diverged is None


def test_the_quickstart_raises_none(quickstart):
    assert (
        run(load_config(quickstart, ["federate.total_round_num", "8"])).diverged is None
    )


def test_overflowing_prototypes_end_the_run_with_the_settings_to_lower(quickstart):
    settings = ["ggeur.base_method", "fedproto", "train.optimizer.lr", "3"]
    with pytest.raises(GGEURError) as caught:
        run(load_config(quickstart, settings))
    said = str(caught.value)
    assert "client 1, round 2: training diverged" in said
    assert "train.optimizer.lr (now 3.0) or ggeur.fedproto.strength" in said


def test_an_overflowing_server_step_names_its_setting(quickstart):
    settings = ["ggeur.base_method", "scaffold", "ggeur.scaffold.server_lr", "1e38"]
    with pytest.raises(GGEURError, match=r"ggeur\.scaffold\.server_lr"):
        run(load_config(quickstart, settings))


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-20, 1e-19, 1e10])
@pytest.mark.parametrize("dim", [6, 40])
def test_embeddings_of_any_scale_give_the_same_closed_form_and_augmented_sets(
    quickstart, tmp_path, scale, dim
):
    """What round 0 sends is relative to the embeddings, however small their squares."""
    runs = {}
    for factor in (1.0, scale):
        root = tmp_path / f"{factor:g}"
        root.mkdir()
        rng = np.random.default_rng(0)
        for domain in ("art", "photo"):
            labels = np.repeat(np.arange(3), 60)
            features = (
                rng.normal(size=(180, dim)) + 2 * rng.normal(size=(3, dim))[labels]
            )
            np.savez(root / f"{domain}.npz", features=features * factor, labels=labels)
        runs[factor] = Run(
            load_config(
                quickstart,
                [
                    "data.type", "embeddings@ggeur", "data.root", str(root),
                    "federate.total_round_num", "1", "ggeur.step1_size", "80",
                    "ggeur.step2_size", "20", "ggeur.space", "raw",
                    "train.optimizer.lr", "0.01",
                ],
            )
        )  # fmt: skip
        runs[factor].follow(lambda record: None)
    sets = [
        {k: c.recipe.draw(1) for k, c in one.engine.clients.items()}
        for one in runs.values()
    ]
    for number, (features, labels) in sets[0].items():
        scaled, same = sets[1][number]
        assert labels.equal(same)
        relative = scaled.double() / scale
        assert (relative - features).abs().max() < 1e-4 * features.abs().max()


def test_the_console_says_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["--cfg", "ggeur_quickstart.yaml", "train.optimizer.lr", "20000"]
    assert main([*command, "federate.total_round_num", "2"]) == 0
    out, err = capsys.readouterr()
    assert "training diverged in round 1 (client " in out
    assert "lower train.optimizer.lr" in err
