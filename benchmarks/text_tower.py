"""What text costs, and zero-shot scores where there are weights.

    python benchmarks/text_tower.py [--csv FILE] [--quick]
    python benchmarks/text_tower.py --data cifar100@ggeur --root FOLDER [--device cuda]

Without `--data`: CPU seconds of the text side of ViT-B/16 with random weights, on one
thread: 80 templates x 100 names as trees of tokens, the same from the cache, and a step
of learnt prompts for 100 classes. With `--data` the images of a data set are embedded
with OpenAI's weights (or `--pretrained FILE`) and classified by their classes' names
alone, by one template and by OpenAI's 80; where the weights are not on this machine and
cannot be fetched it says so and prints no figure.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial

import open_clip
import torch
from measure import report

from federatedscope_ggeur.data import (
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    load_data,
)
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.extras.text.keys import TEXT_MODELS
from federatedscope_ggeur.extras.text.load import BATCH, load_text, load_tower
from federatedscope_ggeur.extras.text.prompts import PromptedClasses
from federatedscope_ggeur.extras.text.templates import IMAGENET80, fill

THREAD = ExtractionSettings(num_threads=1)


def cpu_seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def cost(quick: bool) -> list[dict]:
    """Rows of the costs without weights."""
    torch.set_num_threads(1)
    names = tuple(open_clip.IMAGENET_CLASSNAMES[: 80 if quick else 1000 : 10])
    encoder = EncoderSettings("open_clip", "ViT-B-16", "none")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        encoding = EncodingSettings(encoder, THREAD, device="cpu", cache=folder)
        tower, _ = load_tower(encoding)
        prompts = [fill(text, name) for name in names for text in IMAGENET80]
        encode = partial(tower.features, prompts, BATCH)
        rows.append(_row("80 templates, encoded", len(names), cpu_seconds(encode)))
        texts = load_text(names, ["one"], encoding).text
        again = partial(load_text, names, ["one"], encoding)
        rows.append(_row("text from the cache", len(names), cpu_seconds(again)))
    for kind, vectors in (("promptfl", 4), ("promptfl", 16), ("fedtpg", 4)):
        classes = PromptedClasses(tower, names, vectors)
        known = ClassTexts(texts.features, texts.scale, prompts=classes)
        model = TEXT_MODELS[kind].build(known, n_ctx=vectors)
        model.reset(torch.Generator().manual_seed(0))
        x, y = torch.randn(200, 512), torch.arange(200) % len(names)

        def step(model=model, x=x, y=y):
            model.loss(model(x), y).backward()

        step()  # to warm up
        title = f"{kind}, {vectors} vectors, a gradient"
        rows.append(_row(title, len(names), cpu_seconds(step)))
    return rows


def _row(what: str, classes: int, seconds: float) -> dict:
    return {"what": what, "classes": classes, "seconds": round(seconds, 3)}


def scores(options: argparse.Namespace) -> list[dict]:
    """Rows of zero-shot accuracies on the test rows of a data set."""
    encoder = EncoderSettings("open_clip", "ViT-B-16", options.pretrained)
    encoding = EncodingSettings(encoder, device=options.device, cache=options.cache)
    data = load_data(options.data, options.root, [0.7, 0.0, 0.3], 0, encoding)
    rows = []
    for template in ("one", "imagenet80"):
        made = load_text(data.class_names, [template], encoding, data.identity).text
        for domain in data.domains:
            logits = domain.test.features @ made.features.T
            right = (logits.argmax(dim=1) == domain.test.labels).float().mean()
            accuracy = round(100 * float(right), 2)
            row = {"templates": template, "domain": domain.name, "accuracy": accuracy}
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--csv", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default="", help="data.type of an image data set")
    parser.add_argument("--root", default="data")
    parser.add_argument("--pretrained", default="openai")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache", default="embeddings_cache")
    options = parser.parse_args()
    if not options.data:
        report(cost(options.quick), options.csv)
        return
    try:
        rows = scores(options)
    except GGEURError as error:
        print(f"not measured: {error}")
        return
    report(rows, options.csv)


if __name__ == "__main__":
    main()
