"""Encoder ``run``: what the last layer of a run's network takes in.

It stands here because a run's folder is read by its config; all else of it is as with
the encoders of `data`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.networks import network_settings
from federatedscope_ggeur.data.encoders import (
    Encoder,
    EncoderSettings,
    build_encoder_called,
    register_encoder,
)
from federatedscope_ggeur.data.encoders.model import check_precision, forward_pass
from federatedscope_ggeur.data.encoders.weights import (
    file_stamp,
)
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError, DataError, shown
from federatedscope_ggeur.models import ImageNetwork
from federatedscope_ggeur.models.networks.keys import PIXELS
from federatedscope_ggeur.reporting import (
    HEAD_FILE,
    RESULTS_FILE,
    Results,
    read_results,
)
from federatedscope_ggeur.settings import flatten


def _stamp(settings: EncoderSettings) -> dict[str, str | None]:
    files = [Path(settings.model) / name for name in (HEAD_FILE, RESULTS_FILE)]
    if not all(file.is_file() for file in files):
        return {"weights": None}
    return {"weights": " ".join(map(file_stamp, files))}


@register_encoder("run", uses=("model", "normalize", "precision"), stamp=_stamp)
def run(settings: EncoderSettings, device: torch.device) -> Encoder:
    """Features by a network that a run of this program has trained.

    `model` is the run's folder; images are prepared as they were for it. A feature is
    what the network's last layer takes in, D'' numbers.

    Raises
    ------
    ConfigError
        It is no folder of a run that trained a network.
    DataError
        A file in it is damaged.
    """
    check_precision(settings.precision, device)
    folder = Path(settings.model)
    results, pixels, model = _read(folder)
    model.to(device)

    def forward(batch: Tensor) -> Tensor:
        return model.last_input(model.prepare(pixels.encode(batch)))

    encode = forward_pass(forward, device, settings.precision, settings.normalize)
    return Encoder(
        title=f"{model.settings.name} of a run, {settings.precision}",
        identity={
            "network": model.settings.name,
            "weights": sha256_file(folder / HEAD_FILE),
            "preprocess": results.encoder,
            "mean, std": [*model.settings.mean, *model.settings.std],
            "normalize": settings.normalize,
            "precision": settings.precision,
        },
        dim=model.classifier.in_features,
        preprocess=pixels.preprocess,
        encode=encode,
        device=device,
    )


def other_rows_note(cfg) -> str:
    """What to say where the network's run divided the same data otherwise, so that it
    may have trained on rows that are scored here; "" where not, or nobody can tell."""
    folder = Path(cfg.ggeur.encoder.model)
    if cfg.ggeur.encoder.name != "run" or not (folder / RESULTS_FILE).is_file():
        return ""  # its features are in the cache
    then, now = (dict(flatten(c)) for c in (read_results(folder).config, cfg))

    def differ(*keys: str) -> list[str]:
        return [key for key in keys if then.get(key) != now[key]]

    other = differ("seed", "data.splits", "ggeur.unseen_domains")
    if not other or differ("data.type", "data.root"):
        return ""
    return (
        f"ggeur.encoder.model: '{cfg.ggeur.encoder.model}' was trained with another "
        f"{', '.join(other)}: it may have seen rows that are scored here"
    )


def _read(folder: Path) -> tuple[Results, Encoder, ImageNetwork]:
    """A run's results, what made its pixels, and its network."""
    # Imported here, since these gather the keys, of encoders too.
    from federatedscope_ggeur.cfg_ggeur.encoding import encoder_settings
    from federatedscope_ggeur.cfg_ggeur.foreign import config_left

    where = f"ggeur.encoder.model: '{folder}'"
    if not all((folder / name).is_file() for name in (RESULTS_FILE, HEAD_FILE)):
        raise ConfigError(
            f"{where} is not the folder of a run that left a model: it must hold "
            f"{RESULTS_FILE} and {HEAD_FILE}"
        )
    results = read_results(folder)
    ggeur = config_left(results).ggeur
    chosen = network_settings(ggeur)
    if chosen is None:
        raise ConfigError(
            f"{where} is of a run that trained a head on embeddings; take one with "
            "ggeur.network.name"
        )
    if ggeur.encoder.name != PIXELS:
        raise ConfigError(
            f"{where} is of a network on pixels that no encoder made (its "
            f"ggeur.encoder.name is {shown(ggeur.encoder.name)}, not {PIXELS}), so "
            "images cannot be prepared for it"
        )
    cpu = torch.device("cpu")
    pixels = build_encoder_called(encoder_settings(ggeur), cpu, results.encoder)
    classes = len(results.class_names)
    model = ImageNetwork(pixels.dim, classes, replace(chosen, weights=""))
    try:
        model.load_state_dict(load_file(str(folder / HEAD_FILE)))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DataError(
            f"{folder / HEAD_FILE}: does not fit the run's settings: "
            f"{' '.join(str(error).split())}"
        ) from error
    return results, pixels, model.eval().requires_grad_(False)
