"""The keys `ggeur.encoder.*`: how image data sets become embeddings."""

from __future__ import annotations

import re

from federatedscope_ggeur.settings.key import Key
from federatedscope_ggeur.settings.rules import NOT_SET, one_of, text, whole


def _device(value) -> str:
    if isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        return ""
    return f"must be auto, cpu, cuda or cuda:<number>, got {value!r}"


def _folder(value) -> str:
    problem = text(value)
    return problem or ("" if value else "must name a folder")


ENCODER_KEYS = (
    Key(
        "encoder.name",
        "open_clip",
        "The encoder that embeds images: open_clip, timm, hog, pixels, run (a network "
        "of an earlier run) or one of your own; image keeps the pixels, for a network "
        "to train on.",
        text,
    ),
    Key(
        "encoder.model",
        "",
        "The encoder's model; '': ViT-B-16 with open_clip. timm needs one; run takes "
        "the folder of a run.",
        text,
    ),
    Key(
        "encoder.pretrained",
        "",
        "Its weights: a tag, a file (.safetensors, or a state dict), or none for "
        "random ones; '': openai with open_clip, the model's own with timm.",
        text,
    ),
    Key(
        "encoder.quick_gelu",
        "auto",
        "Whether open_clip weights were trained with QuickGELU: with, without, or "
        "auto (found out).",
        one_of("auto", "with", "without"),
    ),
    Key(
        "encoder.normalize",
        False,
        "Scale every embedding to length 1; False keeps the model's own length, which "
        "is about 10 with CLIP.",
        one_of(True, False),
    ),
    Key(
        "encoder.image_size",
        NOT_SET,
        "hog, pixels and image: images are resized to a square of so many pixels a "
        "side; -1: 64, 16 and 32.",
        whole(1, not_set_allowed=True, maximum=4096),
    ),
    Key(
        "encoder.precision",
        "fp32",
        "Arithmetic of the encoder: fp32, bf16 or (GPU only) fp16.",
        one_of("fp32", "bf16", "fp16"),
    ),
    Key(
        "encoder.device",
        "auto",
        "Where the encoder computes: auto (a GPU if there is one), cpu, cuda, cuda:1. "
        "Heads are trained where use_gpu and device say.",
        _device,
    ),
    Key("encoder.batch_size", 64.0, "Images that it embeds at a time.", whole(1)),
    Key(
        "encoder.num_workers",
        NOT_SET,
        "Processes that decode images; 0: none but the main one; -1: one for each CPU, "
        "at most 16.",
        whole(0, not_set_allowed=True, maximum=1024),
    ),
    Key(
        "encoder.num_threads",
        NOT_SET,
        "torch threads of the encoder on a CPU; -1: one for each CPU.",
        whole(1, not_set_allowed=True, maximum=1024),
    ),
    Key(
        "encoder.cache",
        "embeddings_cache",
        "Folder that keeps embeddings. It can be copied to a machine without images "
        "and weights.",
        _folder,
    ),
    Key(
        "encoder.float16_cache",
        False,
        "Store embeddings in half precision: half the space, 3 digits. Not for image, "
        "which keeps bytes.",
        one_of(True, False),
    ),
    Key(
        "encoder.hash_files",
        False,
        "Notice changed images by their contents, not by size and time of their files. "
        "Each run then decodes all images.",
        one_of(True, False),
    ),
    Key(
        "encoder.skip_unreadable",
        False,
        "Leave out images that cannot be loaded, and name them in the log; otherwise "
        "they are an error.",
        one_of(True, False),
    ),
)
