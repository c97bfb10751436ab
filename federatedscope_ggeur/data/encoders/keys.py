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
        "Encoder of the images: open_clip, timm, hog, pixels, run (a network of an "
        "earlier run) or one of your own. image keeps the pixels, for a network that "
        "is trained on them.",
        text,
    ),
    Key(
        "encoder.model",
        "",
        "The encoder's model; '': ViT-B-16 for open_clip. timm needs a model; for "
        "run, name the folder of a run.",
        text,
    ),
    Key(
        "encoder.pretrained",
        "",
        "Weights of the encoder: a tag, a file (.safetensors or a state dict), or "
        "none for random ones; '': openai for open_clip, the model's own for timm.",
        text,
    ),
    Key(
        "encoder.quick_gelu",
        "auto",
        "Whether the open_clip weights were trained with QuickGELU: with, without, or "
        "auto, which finds it out.",
        one_of("auto", "with", "without"),
    ),
    Key(
        "encoder.normalize",
        False,
        "True: scale every embedding to length 1. False: keep the model's length, "
        "about 10 for CLIP.",
        one_of(True, False),
    ),
    Key(
        "encoder.image_size",
        NOT_SET,
        "hog, pixels and image: side, in pixels, of the square that images are "
        "resized to; -1: 64, 16 and 32.",
        whole(1, not_set_allowed=True, maximum=4096),
    ),
    Key(
        "encoder.precision",
        "fp32",
        "Number format that the encoder computes in: fp32, bf16 or (GPU only) fp16.",
        one_of("fp32", "bf16", "fp16"),
    ),
    Key(
        "encoder.decode",
        "pillow",
        "How JPEG photographs are decoded for open_clip and timm: pillow; draft "
        "(Pillow, at a half, quarter or eighth of their size where that suffices; "
        "faster) or gpu (nvJPEG; fastest). Embeddings differ a little.",
        one_of("pillow", "draft", "gpu"),
    ),
    Key(
        "encoder.grey_bits",
        16.0,
        "Bits of grey images in 16-bit files: 12 for many scanners and cameras, whose "
        "images are nearly black otherwise.",
        whole(8, maximum=16),
    ),
    Key(
        "encoder.device",
        "auto",
        "Where the encoder runs: auto (a GPU if there is one), cpu, cuda or cuda:1. "
        "For heads, see use_gpu and device.",
        _device,
    ),
    Key(
        "encoder.batch_size",
        64.0,
        "How many images the encoder embeds at a time.",
        whole(1),
    ),
    Key(
        "encoder.num_workers",
        NOT_SET,
        "Processes that decode images; 0: only the main process; -1: one for each "
        "CPU, at most 16.",
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
        "Folder that keeps embeddings. A machine without images and weights can use a "
        "copy of it.",
        _folder,
    ),
    Key(
        "encoder.float16_cache",
        False,
        "Store embeddings in half precision: half the space, 3 digits. The encoder "
        "image cannot use it.",
        one_of(True, False),
    ),
    Key(
        "encoder.hash_files",
        False,
        "Compare images by their contents, not by size and time of their files. Every "
        "run then reads all images.",
        one_of(True, False),
    ),
    Key(
        "encoder.skip_unreadable",
        False,
        "True: leave out images that cannot be loaded, and name them in the log. "
        "False: stop with an error.",
        one_of(True, False),
    ),
)
