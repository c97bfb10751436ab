"""Part `extraction` of `gpu.py`: images a second from JPEG files, by each decoder.

The files are of 640 x 480 pixels. The start of the processes is not counted, because
they stay: they decode a first set of files, and the second one is timed. The bare model
computes batches that lie prepared on the device. `cosine` is between the embeddings and
those by Pillow: mean and smallest; `grey levels` is how far the encoder's input moves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from extraction import some_images, write_photos
from gpu_bench import Bench
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    ExtractionSettings,
    build_encoder,
    extract,
)
from federatedscope_ggeur.data.extraction import prepared
from federatedscope_ggeur.data.images import Images
from federatedscope_ggeur.data.processes import Processes
from federatedscope_ggeur.errors import GGEURError

PRECISIONS = ("bf16", "fp32")
DECODES = ("pillow", "draft", "gpu")


def encoder_of(bench: Bench, precision: str, decode: str) -> Encoder:
    """ViT-B/16 of open_clip with random weights, or of timm where there is none."""
    size = "test_vit" if bench.small else "vit_base_patch16_224"
    first = None
    for name, model in (("open_clip", "ViT-B-16"), ("timm", size)):
        if bench.small and name == "open_clip":
            continue
        settings = EncoderSettings(
            name, model, "none", precision=precision, decode=decode
        )
        try:
            return build_encoder(settings, bench.device)
        except GGEURError as error:
            first = first or error
    raise first or AssertionError("no encoder")


def inputs(encoder: Encoder, images: Images, rows: int) -> Tensor:
    """The encoder's input for the first images, in bytes."""
    batch = next(prepared(encoder, images, ExtractionSettings(rows, 0)))
    return batch.cpu()


def rows(bench: Bench) -> Iterator[dict[str, object]]:
    number, batch = (24, 8) if bench.small else (4096, 128)
    settings = ExtractionSettings(batch, None, 1 if bench.small else None)
    with tempfile.TemporaryDirectory() as folder:
        made = min(number, 128)
        write_photos(Path(folder), made)
        few = some_images(Path(folder), made)
        # Each file many times over, because writing one takes longer than reading it.
        places = [row % made for row in range(number)]
        many = Images(
            few.labels[places],
            tuple(few.keys[row] for row in places),
            tuple(few.stamps[row] for row in places),
            replace(few.load, paths=tuple(few.load.paths[row] for row in places)),
        )
        for precision in PRECISIONS[: 1 if bench.small else None]:
            if not bench.has(20, precision):
                return
            yield from _of_precision(bench, precision, few, many, settings)


def _of_precision(bench, precision, few, many, settings):
    first = encoder_of(bench, precision, "pillow")
    size, count = settings.batch_size, len(many)
    one = inputs(first, few, min(size, len(few))).to(bench.device)

    def bare() -> None:
        for _ in range(count // size):
            features = first.encode(one)
        features.cpu()

    speed = count // size * size / median(bench.in_turns({"": bare}, 3)[""])
    yield {
        "model": first.title,
        "decode": "bare model",
        "images/s": f"{speed:.0f}",
        "of bare": "100%",
        "cosine": "",
        "grey levels": "",
    }
    by_pillow = torch.cat([*extract(first, few, settings)])
    seen = inputs(first, few, min(64, len(few))).float()
    for decode in DECODES:
        if not bench.has(12, f"{precision} {decode}"):
            return
        encoder = replace(first, decode=decode)
        with Processes() as processes:

            def run(images=many, encoder=encoder, processes=processes) -> list[Tensor]:
                return [*extract(encoder, images, settings, 0, processes)]

            features = torch.cat(run(few))  # the processes start
            seconds = bench.seconds(run)
        alike = F.cosine_similarity(features, by_pillow)
        moved = (inputs(encoder, few, len(seen)).float() - seen).abs()
        yield {
            "model": first.title,
            "decode": decode,
            "images/s": f"{count / seconds:.0f}",
            "of bare": f"{count / seconds / speed:.0%}",
            "cosine": f"{alike.mean():.5f}, {alike.min():.5f}",
            "grey levels": f"{moved.mean():.2f}, at most {moved.max():.0f}",
        }
