"""Small images and small models for tests of the way from images to embeddings."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.errors import ConfigError

CLASSES = ("circle", "cross", "square")
TINY, TEXT_TINY = "ggeur-tiny", "ggeur-tiny-text"
_TINY_CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {
        "image_size": 32,
        "layers": 1,
        "width": 32,
        "head_width": 16,
        "patch_size": 8,
    },
    "text_cfg": {
        "context_length": 8,
        "vocab_size": 64,
        "width": 16,
        "heads": 2,
        "layers": 1,
    },
}


def write_images(
    folder: Path, domains=("day", "night"), per_class: int = 5, size=(48, 40)
) -> Path:
    """A tree ``<domain>/<class>/<number>.jpg`` of noise around a colour."""
    rng = np.random.default_rng(0)
    colours = rng.uniform(40, 215, size=(len(domains), len(CLASSES), 1, 1, 3))
    for domain, of_domain in zip(domains, colours):
        for name, colour in zip(CLASSES, of_domain):
            place = folder / domain / name
            place.mkdir(parents=True)
            for number in range(per_class):
                pixels = colour + rng.normal(0, 25, size=(size[1], size[0], 3))
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(place / f"{number:03d}.jpg")
    return folder


def photograph(width=160, height=120, seed=0) -> Image.Image:
    """A smooth picture with some grain."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.BICUBIC), float)
    grain = rng.normal(0, 6, smooth.shape)
    return Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))


def refusal(settings: EncoderSettings) -> str:
    """What is said of an encoder that cannot be built."""
    with pytest.raises(ConfigError) as caught:
        build_encoder(settings, torch.device("cpu"))
    return str(caught.value)


def add_tiny_clip(folder: Path) -> str:
    """Tell open_clip of a tiny CLIP model, and of its QuickGELU twin; its name."""
    _add(folder, TINY, _TINY_CONFIG)
    return TINY


def add_text_clip(folder: Path) -> str:
    """The same of one that knows all of CLIP's tokens: two layers, 64 wide."""
    _add(folder, TEXT_TINY, text_clip_config())
    return TEXT_TINY


def text_clip_config(width: int = 64) -> dict:
    text = {"context_length": 77, "vocab_size": 49408, "width": width}
    text_cfg = {**text, "heads": width // 16 or 1, "layers": 2}
    return {**_TINY_CONFIG, "text_cfg": text_cfg}


def add_narrow_clip(folder: Path) -> str:
    """The same, 16 wide, for finite differences."""
    _add(folder, f"{TEXT_TINY}-16", text_clip_config(16))
    return f"{TEXT_TINY}-16"


def _add(folder: Path, model: str, config: dict) -> None:
    import open_clip

    if model in open_clip.list_models():
        return
    for name, extra in ((model, {}), (f"{model}-quickgelu", {"quick_gelu": True})):
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**config, **extra}))
        open_clip.add_model_config(path)
        path.unlink()
        # open_clip keeps the path and reads it again at the next addition.
        open_clip.factory._MODEL_CONFIG_PATHS.remove(path)
