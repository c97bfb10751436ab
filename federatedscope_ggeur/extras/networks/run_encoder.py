"""The encoder ``run``: the input of the last layer of a run's network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.demands import other_model_of
from federatedscope_ggeur.cfg_ggeur.foreign import config_left
from federatedscope_ggeur.cfg_ggeur.run_settings import encoder_settings
from federatedscope_ggeur.data.encoders import (
    Encoder,
    EncoderSettings,
    build_encoder_called,
    register_encoder,
)
from federatedscope_ggeur.data.encoders.base import file_stamp
from federatedscope_ggeur.data.encoders.model import check_precision, forward_pass
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError, DataError, shown
from federatedscope_ggeur.files import check_regular
from federatedscope_ggeur.reporting import (
    HEAD_FILE,
    RESULTS_FILE,
    Results,
    read_results,
)
from federatedscope_ggeur.settings import flatten

from .image_network import PIXELS, ImageNetwork, NetworkSettings


def _stamp(settings: EncoderSettings) -> dict[str, str | None]:
    files = [Path(settings.model) / name for name in (HEAD_FILE, RESULTS_FILE)]
    if not all(file.is_file() for file in files):
        return {"weights": None}
    return {"weights": " ".join(map(file_stamp, files))}


def _note(config: Mapping[str, object]) -> str:
    """A warning if the encoder's network may have trained on rows that are scored here.

    That is possible if its run divided the same data in another way. The result is ""
    if it did not, or if that cannot be known.
    """
    folder = Path(str(config["ggeur.encoder.model"]))
    if not (folder / RESULTS_FILE).is_file():
        return ""  # its features are in the cache
    then = dict(flatten(read_results(folder).config))

    def differ(*keys: str) -> list[str]:
        return [key for key in keys if then.get(key) != config[key]]

    other = differ("seed", "data.splits", "ggeur.unseen_domains")
    if not other or differ("data.type", "data.root"):
        return ""
    return (
        f"ggeur.encoder.model: the network in '{config['ggeur.encoder.model']}' was "
        f"trained with another {', '.join(other)}, so it may have trained on rows that "
        "are scored here"
    )


@register_encoder(
    "run", uses=("model", "normalize", "precision"), stamp=_stamp, note=_note
)
def run(settings: EncoderSettings, device: torch.device) -> Encoder:
    """An encoder that uses the network which an earlier run has trained.

    An embedding is the input of the network's last layer. `settings.model` is the
    folder of the run, and images are prepared as in that run.

    Raises
    ------
    ConfigError
        The folder is not of a run that trained a network.
    DataError
        A file in the folder is damaged.
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
        grey_bits=pixels.grey_bits,
    )


def _read(folder: Path) -> tuple[Results, Encoder, ImageNetwork]:
    """Read the run in `folder`: its results, its encoder of pixels, and its network."""
    where = f"ggeur.encoder.model: '{folder}'"
    if not all((folder / name).is_file() for name in (RESULTS_FILE, HEAD_FILE)):
        raise ConfigError(
            f"{where} is not the folder of a run that left a model; name a folder "
            f"that holds {RESULTS_FILE} and {HEAD_FILE}"
        )
    results = read_results(folder)
    left = config_left(results)
    chosen, ggeur = other_model_of(left), left.ggeur
    if not isinstance(chosen, NetworkSettings):
        raise ConfigError(
            f"{where}: that run trained a head on embeddings and has no network; name "
            "a run with ggeur.network.name"
        )
    if ggeur.encoder.name != PIXELS:
        raise ConfigError(
            f"{where}: images cannot be prepared for that run's network, because its "
            f"ggeur.encoder.name is {shown(ggeur.encoder.name)}; name a run with "
            f"{PIXELS}"
        )
    cpu = torch.device("cpu")
    pixels = build_encoder_called(encoder_settings(ggeur), cpu, results.encoder)
    classes = len(results.class_names)
    model = ImageNetwork(
        pixels.dim, classes, replace(chosen, weights="", precision="fp32")
    )
    try:
        check_regular(folder / HEAD_FILE)
        model.load_state_dict(load_file(str(folder / HEAD_FILE)))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DataError(
            f"{folder / HEAD_FILE}: the model does not fit the run's settings: "
            f"{' '.join(str(error).split())}"
        ) from error
    return results, pixels, model.eval().requires_grad_(False)
