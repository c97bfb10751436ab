"""Images a second of extraction, with decoding, against the bare model's.

The bare model computes batches that lie decoded on its device. Extraction reads and
decodes the same number of JPEG files in worker processes meanwhile. Both run in turn,
several times over; the last row is extraction's share, which must be at least 90%.
Images a second are by the wall clock. CPU time, the workers' included, does not depend
on what else the machine does, but for one thread only: more threads spin while they
wait for each other.

    python benchmarks/extraction.py [--folder IMAGES] [--csv FILE] [--quick]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from measure import ratio, report
from PIL import Image

from federatedscope_ggeur.data import (
    Encoder,
    EncoderSettings,
    ExtractionSettings,
    build_encoder,
    extract,
    pick_device,
)
from federatedscope_ggeur.data.images import IMAGE_READERS, Images

SIZE = (640, 480)


def write_photos(folder: Path, number: int) -> Path:
    """JPEG files with the size and about the bytes of a small photograph."""
    rng = np.random.default_rng(0)
    place = folder / "noise" / "photo"
    place.mkdir(parents=True)
    for index in range(number):
        coarse = rng.uniform(0, 255, (12, 16, 3)).astype(np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize(SIZE, Image.BICUBIC))
        grain = rng.normal(0, 8, smooth.shape)
        pixels = (smooth + grain).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{index:05d}.jpg", quality=90)
    return folder


def some_images(folder: Path, number: int) -> Images:
    """The first images of the first domain."""
    found = IMAGE_READERS["image_folder"](str(folder)).domains[0].train
    number = min(number, len(found))
    parts = (part[:number] for part in (found.labels, found.keys, found.stamps))
    return Images(*parts, found.load)


def bare_model(
    encoder: Encoder, images: Images, settings: ExtractionSettings
) -> Callable[[], object]:
    """The model alone on as many batches, of the same sizes."""
    size = settings.batch_size
    one = torch.stack([encoder.preprocess(images.load(row)) for row in range(size)])
    one = one.to(encoder.device)

    def run() -> None:
        torch.set_num_threads(settings.num_threads)
        for first in range(0, len(images), size):
            features = encoder.encode(one[: min(size, len(images) - first)])
        features.cpu()

    return run


def seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Wall time, and CPU time of this process and of those that it has waited for."""
    started, used = time.perf_counter(), sum(os.times()[:4])
    function()
    return time.perf_counter() - started, sum(os.times()[:4]) - used


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="<domain>/<class>/<file> images")
    parser.add_argument("--encoder", default="open_clip")
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--pretrained", default="none")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv")
    parser.add_argument("--quick", action="store_true", help="few images, once")
    options = parser.parse_args()
    if options.quick:
        options.images, options.batch_size, options.repeats = 16, 4, 1
    settings = ExtractionSettings(options.batch_size, options.workers, options.threads)
    chosen = EncoderSettings(
        options.encoder, options.model, options.pretrained, precision=options.precision
    )
    encoder = build_encoder(chosen, pick_device(options.device))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or write_photos(Path(temporary), options.images)
        images = some_images(folder, options.images)
        functions = {
            "bare model": bare_model(encoder, images, settings),
            "extraction": lambda: sum(map(len, extract(encoder, images, settings))),
        }
        walls: dict[str, list[float]] = {name: [] for name in functions}
        cpus: dict[str, list[float]] = {name: [] for name in functions}
        for function in functions.values():
            function()
        for _ in range(options.repeats):
            for name, function in functions.items():
                wall, cpu = seconds(function)
                walls[name].append(wall)
                cpus[name].append(cpu)
    print(f"{encoder.name}, batch {options.batch_size}, {options.threads} threads")
    number = len(images)
    rows = [
        {
            "what": name,
            "images/s": f"{number / median(walls[name]):.2f}",
            "CPU ms an image": f"{1e3 * median(cpus[name]) / number:.1f}",
        }
        for name in functions
    ]
    bare, whole = functions
    share = {
        "what": "share",
        "images/s": ratio(walls[bare], walls[whole]),
        "CPU ms an image": ratio(cpus[bare], cpus[whole]),
    }
    report([*rows, share], options.csv)


if __name__ == "__main__":
    main()
