"""Part `networks` of `gpu.py`: a mini-batch of `fit` beside one of a plain torch loop.

The loop keeps its images on the device too, and shifts and mirrors a batch there, with
the device's own draws. A second loop takes algorithms that repeat their bits, as `fit`
does: so the reader sees what repeating costs, and what `fit` costs beside it. A step's
time is the slope over the number of steps; what a client's round costs beside its steps
stands in a column of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from gpu_bench import Bench
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.extras.networks.image_network import (
    ImageNetwork,
    NetworkSettings,
)
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.models import ModelSettings, build_model, to_vector

CLASSES, PAD = 10, 4
SGD = {"momentum": 0.9, "weight_decay": 1e-5}
RATE = 0.01
#: Network, side, batch.
CASES = (
    ("resnet18", 32, 64),
    ("resnet18", 32, 10),
    ("convnet5", 32, 64),
    ("alexnet_bn", 256, 32),
)
SMALL = (("resnet18", 8, 4), ("convnet5", 32, 4))
PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass
class Case:
    """Images on a device, and a model to train on them."""

    name: str
    side: int
    batch: int
    precision: str
    device: torch.device

    def __post_init__(self):
        settings = NetworkSettings(
            self.name, augment="crop_flip", precision=self.precision
        )
        dim = 3 * self.side**2
        model = build_model(dim, CLASSES, ModelSettings(other=settings))
        assert isinstance(model, ImageNetwork)
        self.model = model.reset(torch.Generator().manual_seed(0)).to(self.device)
        self.start = to_vector(self.model)

    def rows(self, steps: int) -> tuple[Tensor, Tensor]:
        shape = steps * self.batch, 3 * self.side**2
        pixels = torch.randint(256, shape, dtype=torch.uint8, device=self.device)
        return pixels, torch.arange(shape[0], device=self.device) % CLASSES

    def ours(self, steps: int) -> Callable[[], object]:
        """An epoch of `fit`."""
        pixels, labels = self.rows(steps)
        training = TrainingSettings(
            OptimizerSettings("SGD", RATE, SGD),
            batch_size=self.batch,
            device=self.device,
        )
        return lambda: fit(self.model, self.start, pixels, labels, training, seed=0)

    def loop(self, steps: int, repeats: bool = False) -> Callable[[], object]:
        """An epoch in plain torch; `repeats` asks for algorithms that repeat."""
        pixels, labels = self.rows(steps)
        images = pixels.view(-1, 3, self.side, self.side)
        module = self.model.network

        def epoch() -> None:
            for parameter in module.parameters():  # `fit` has bound them to a vector
                parameter.data = parameter.data.clone()
            module.train()
            optimizer = torch.optim.SGD(module.parameters(), RATE, **SGD)
            order = torch.randperm(len(labels), device=self.device)
            for batch in order.split(self.batch):
                x = (moved(images[batch].float() / 255) - 0.5) / 0.5
                optimizer.zero_grad()
                with torch.autocast(
                    self.device.type, torch.bfloat16, self.precision == "bf16"
                ):
                    logits = module(x)
                F.cross_entropy(logits.float(), labels[batch]).backward()
                optimizer.step()

        def run() -> None:
            with ExitStack() as stack:
                if self.device.type == "cuda":
                    tf32 = self.precision == "tf32"
                    flags = {"deterministic": repeats, "allow_tf32": tf32}
                    stack.enter_context(torch.backends.cudnn.flags(True, **flags))
                    torch.backends.cuda.matmul.allow_tf32 = tf32
                epoch()

        return run


def moved(images: Tensor) -> Tensor:
    """Shift images by up to four pixels and mirror half of them, on their device."""
    size, channels, side, _ = images.shape
    device = images.device
    down, right = torch.randint(2 * PAD + 1, (2, size, 1), device=device)
    line = torch.arange(side, device=device)
    mirrored = torch.rand(size, 1, device=device) < 0.5
    columns = torch.where(mirrored, side - 1 - line, line) + right
    wide = side + 2 * PAD
    at = ((line + down)[:, :, None] * wide + columns[:, None]).view(size, 1, -1)
    padded = F.pad(images, (PAD,) * 4).view(size, channels, -1)
    return padded.gather(2, at.expand(-1, channels, -1)).view_as(images)


def rows(bench: Bench) -> Iterator[dict[str, object]]:
    cases = SMALL if bench.small else CASES
    few, many, repeats = (1, 2, 1) if bench.small else (8, 40, 5)
    for name, side, batch in cases:
        for precision in PRECISIONS:
            if not bench.has(10, f"{name} {batch} {precision}"):
                return
            case = Case(name, side, batch, precision, bench.device)
            who = {
                "fit": case.ours,
                "loop": case.loop,
                "repeating loop": partial(case.loop, repeats=True),
            }
            calls = {
                (w, steps): make(steps)
                for w, make in who.items()
                for steps in (few, many)
            }
            seconds = bench.in_turns(calls, repeats)
            ms = {call: 1e3 * median(found) for call, found in seconds.items()}
            step = {w: (ms[w, many] - ms[w, few]) / (many - few) for w in who}
            yield {
                "network": name,
                "pixels": f"3x{side}x{side}",
                "batch": batch,
                "precision": precision,
                **{f"{w} ms": f"{step[w]:.2f}" for w in who},
                "fit / loop": f"{step['fit'] / step['loop']:.2f}",
                "fit / repeating": f"{step['fit'] / step['repeating loop']:.2f}",
                "fit's start and end ms": f"{ms['fit', few] - few * step['fit']:.1f}",
            }
