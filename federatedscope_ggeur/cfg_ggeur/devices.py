"""Choose the training device from FederatedScope's (FS's) `use_gpu` and `device`."""

from __future__ import annotations

import torch

from federatedscope_ggeur.errors import ConfigError


def training_device(cfg) -> torch.device:
    """The device on which models are trained and scored.

    It is the CPU without ``use_gpu``, or if torch sees no GPU (see `device_notes`).
    Otherwise it is the GPU with the number ``device``. A negative number means the GPU
    with the most free memory, as in FS.

    Raises
    ------
    ConfigError
        There is no GPU with this number.
    """
    if not cfg.use_gpu or not torch.cuda.is_available():
        return torch.device("cpu")
    number, count = cfg.device, torch.cuda.device_count()
    if number >= count:
        raise ConfigError(
            f"device: there is no GPU {number}, torch sees {count}; take a number from "
            f"0 to {count - 1}, or -1 for the GPU with the most free memory"
        )
    if number < 0:
        number = max(range(count), key=lambda n: torch.cuda.mem_get_info(n)[0])
    return torch.device("cuda", number)


def gpu_name(device: torch.device) -> str | None:
    """The name of a GPU; None for the CPU."""
    return None if device.type == "cpu" else torch.cuda.get_device_name(device)


def encoder_device(cfg) -> str:
    """The device that ``ggeur.encoder.device: auto`` stands for.

    It is the GPU for training if training uses one, and otherwise "auto".
    """
    device = training_device(cfg)
    return "auto" if device.type == "cpu" else str(device)


def device_notes(cfg) -> list[str]:
    """A warning, in FS's words, if ``use_gpu`` is on but there is no GPU."""
    if not cfg.use_gpu or torch.cuda.is_available():
        return []
    return ["No GPU found for your device, set cfg.use_gpu=False"]
