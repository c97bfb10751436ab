"""TensorBoard and Weights & Biases (W&B) hear of a run's scores."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.commands.console import run_with_files
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import Tracking, TrackingSettings, missing_package
from federatedscope_ggeur.reporting.tracking import scalars

SHORT = {
    "federate.total_round_num": 2,
    "data.splits": [0.6, 0.2, 0.2],
    "eval.split": ["test", "val"],
}


@pytest.fixture
def wandb(monkeypatch):
    """What is told to a W&B that is not there."""
    told = SimpleNamespace(begun=[], lines=[], ended=[])
    module = SimpleNamespace(
        init=lambda **given: told.begun.append(given),
        log=told.lines.append,
        finish=lambda exit_code: told.ended.append(exit_code),
        __spec__=SimpleNamespace(),
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("online", [True, False])
def test_wandb_hears_of_every_round(quickstart, wandb, online):
    own = {"wandb.use": True, "wandb.name_project": "mine", "expname": "first"}
    cfg = load_config(quickstart, {**SHORT, **own, "wandb.online_track": online})
    heard = []
    results = run(cfg, on_round=lambda record: heard.append(len(wandb.lines)))
    (begun,) = wandb.begun
    assert (begun["project"], begun["entity"]) == ("mine", None)
    assert (begun["group"], begun["job_type"]) == ("digits_quickstart@ggeur", "ggeur")
    assert begun["name"] == "first"
    assert begun["config"]["ggeur"]["step1_size"] == 50
    assert heard == ([0, 1, 2] if online else [0, 0, 0])
    assert [line["round"] for line in wandb.lines] == [1, 2]
    for line, record in zip(wandb.lines, results.rounds):
        assert line["test_domain_avg_acc"] == record.avg
        assert line["test_domain_std_acc"] == record.std
        for domain, accuracy in record.accuracy.items():
            assert line[f"test_{domain}_acc"] == accuracy
        assert line["val_loss"] == record.metrics["val_loss"]
        assert line["test_acc"] == record.metrics["test_acc"]
    assert wandb.ended == [0]


@pytest.mark.slow
def test_a_round_without_scores_is_not_told_of(quickstart, wandb):
    run(quickstart, overrides={**SHORT, "eval.freq": 2, "wandb.use": True})
    assert [line["round"] for line in wandb.lines] == [2]


@pytest.mark.slow
def test_a_run_that_breaks_off_ends_as_failed(quickstart, wandb):
    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(quickstart, overrides={**SHORT, "wandb.use": True}, on_round=stop)
    assert wandb.ended == [1]


def test_a_wandb_that_cannot_begin_is_told(quickstart, wandb, monkeypatch):
    def refuse(**given):
        raise RuntimeError("No API key configured")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(ConfigError, match=r"wandb\.use: .*No API key.*WANDB_MODE=off"):
        run(quickstart, overrides={**SHORT, "wandb.use": True})


def test_a_run_that_somebody_else_began_is_not_ended(wandb):
    tracking = Tracking(TrackingSettings(wandb=True), None, begins=False)
    tracking.close()
    assert (wandb.begun, wandb.ended) == ([], [])


@pytest.mark.parametrize(
    ("package", "key"),
    [("wandb", "wandb.use"), ("tensorboard", "ggeur.tensorboard")],
)
def test_a_missing_package_is_named(quickstart, monkeypatch, package, key):
    monkeypatch.setitem(sys.modules, package, None)
    assert package in missing_package(package)
    told = rf"{key}: needs the package {package}.*ggeur\[{package}\]"
    with pytest.raises(ConfigError, match=told):
        load_config(quickstart, {key: True})
    assert load_config(quickstart, {key: False})


@pytest.mark.slow
def test_nothing_is_imported_that_nobody_asks_for(quickstart, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert run(quickstart, overrides=SHORT).status == "finished"


@pytest.mark.slow
def test_wandb_in_offline_mode(quickstart, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.teardown()  # it remembers the folder of its first run
    run(quickstart, overrides={**SHORT, "wandb.use": True})
    wandb.teardown()
    (kept,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = kept.read_bytes()
    for name in (b"test_domain_avg_acc", b"test_inverted_acc", b"val_loss"):
        assert name in content


@pytest.mark.slow
def test_tensorboard_has_every_score(quickstart, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {**SHORT, "ggeur.tensorboard": True, "outdir": str(tmp_path)}
    cfg = load_config(quickstart, settings)
    assert run_with_files(cfg) == 0
    held = EventAccumulator(str(tmp_path / "ggeur_quickstart"))
    held.Reload()
    records = run(quickstart, overrides=SHORT).rounds
    assert set(held.Tags()["scalars"]) == set(scalars(records[0]))
    for name in held.Tags()["scalars"]:
        events = [(event.step, event.value) for event in held.Scalars(name)]
        wanted = [(r.round, pytest.approx(scalars(r)[name])) for r in records]
        assert events == wanted


@pytest.mark.slow
def test_without_a_folder_there_is_no_tensorboard(quickstart, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    Run(load_config(quickstart, {**SHORT, "ggeur.tensorboard": True})).follow(print)
    assert list(tmp_path.iterdir()) == []
