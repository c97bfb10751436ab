"""Which device FederatedScope's `use_gpu` and `device` mean on this machine."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    device_notes,
    encoder_device,
    encoding_settings,
    run_settings,
    training_device,
)
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import ConfigError

CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch):
    """Tell torch how much memory is free on each GPU of this machine."""

    def there_are(*free: int):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(free))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda n: (free[n], 10))

    return there_are


@pytest.mark.parametrize(
    ("settings", "free", "expected"),
    [
        ({}, (1, 3, 2), CPU),
        ({"device": 1}, (1, 3, 2), CPU),
        ({"use_gpu": True}, (1, 3, 2), torch.device("cuda", 1)),
        ({"use_gpu": True, "device": 0}, (1, 3, 2), torch.device("cuda", 0)),
        ({"use_gpu": True, "device": 0}, (), CPU),
    ],
)
def test_the_device(quickstart, gpus, settings, free, expected):
    gpus(*free)
    cfg = load_config(quickstart, settings)
    assert training_device(cfg) == expected
    settings = run_settings(cfg, 10, 16, 4)
    assert settings.role.training.device == expected
    encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
    assert encoding.device == ("auto" if expected == CPU else str(expected))


def test_an_encoder_with_a_device_of_its_own_keeps_it(quickstart, gpus):
    gpus(1, 2)
    cfg = load_config(quickstart, {"use_gpu": True, "ggeur.encoder.device": "cpu"})
    assert encoding_settings(cfg.ggeur, encoder_device(cfg)).device == "cpu"


def test_a_gpu_that_is_not_there_is_named(quickstart, gpus):
    gpus(1, 2)
    with pytest.raises(ConfigError, match="device: there is no GPU 5, torch sees 2"):
        training_device(load_config(quickstart, {"use_gpu": True, "device": 5}))


@pytest.mark.slow
def test_without_gpu_a_run_warns_and_goes_on(quickstart, gpus, caplog):
    gpus()
    plain = {"federate.total_round_num": 1}
    asked = run(quickstart, overrides={**plain, "use_gpu": True})
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert warning == "No GPU found for your device, set cfg.use_gpu=False"
    assert (
        asked.rounds[0].accuracy == run(quickstart, overrides=plain).rounds[0].accuracy
    )


def test_with_a_gpu_or_without_asking_there_is_no_warning(quickstart, gpus):
    gpus(1)
    assert device_notes(load_config(quickstart, {"use_gpu": True})) == []
    gpus()
    assert device_notes(load_config(quickstart)) == []
