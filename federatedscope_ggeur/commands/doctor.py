"""``ggeur doctor``: reports which packages are installed or missing."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from federatedscope_ggeur.extras import manifests
from federatedscope_ggeur.version import __version__

from . import command_parser

#: package on PyPI, module, what it is for
_CORE = (
    ("torch", "torch", "everything"),
    ("numpy", "numpy", "everything"),
    ("yacs", "yacs", "configs"),
    ("pyyaml", "yaml", "configs"),
    ("safetensors", "safetensors", "messages and saved heads"),
    ("scipy", "scipy", "the quickstart's images"),
    ("scikit-learn", "sklearn", "the quickstart's digits"),
    ("scikit-image", "skimage", "the quickstart's features"),
    ("tqdm", "tqdm", "the progress bar"),
    ("argcomplete", "argcomplete", "completion in shells"),
    ("matplotlib", "matplotlib", "curves"),
    ("torchvision", "torchvision", "image data sets"),
    ("open_clip_torch", "open_clip", "CLIP embeddings"),
)


def doctor(arguments: Sequence[str]) -> int:
    """Print the report; returns 0, or 1 if a core package does not work."""
    command_parser("doctor").parse_args(arguments)
    healthy = True
    for line, works in diagnose():
        healthy &= works
        print(line, flush=True)
    return 0 if healthy else 1


def diagnose() -> Iterator[tuple[str, bool]]:
    """Yield the lines of the report, each with whether its package works.

    The first lines come before any import that may take long or fail.
    """
    here = Path(__file__).parents[1]
    yield f"federatedscope_ggeur {__version__} in {here}", True
    yield f"Python {platform.python_version()} in {sys.prefix}\n", True
    for package, module, purpose in _CORE:
        state, works = _state_of(package, module)
        yield f"{'ok     ' if works else 'MISSING'} {package}: {state}", works
        if not works:
            yield f"        needed for {purpose}; pip install {package}", False
    for line in ("", _accelerator(), _weights()):
        yield line, True
    for extra in manifests().values():
        if extra.doctor:
            yield from ((line, True) for line in import_module(extra.doctor).report())


def _state_of(package: str, module: str) -> tuple[str, bool]:
    try:
        import_module(module)
    except ImportError as error:
        return f"cannot be imported ({error})", False
    except Exception as error:  # a broken install may raise anything
        hint = ""
        if package == "torchvision":
            hint = "; torch and torchvision must come from the same release and build"
        return f"is installed but broken ({error}){hint}", False
    try:
        return version(package), True
    except PackageNotFoundError:
        return "imported, version unknown", True


def _accelerator() -> str:
    try:
        import torch
    except Exception:  # reported above; a broken install may raise anything
        return "accelerator: unknown without torch"
    if torch.cuda.is_available():
        return (
            f"accelerator: {torch.cuda.get_device_name(0)} (encoders use it; heads are "
            "trained on it with use_gpu: True)"
        )
    return "accelerator: none (heads on embeddings need none)"


def _weights() -> str:
    """A line that says whether the default encoder's weights are on this machine."""
    try:
        from federatedscope_ggeur.data import EncoderSettings
        from federatedscope_ggeur.data.encoders import encoder_stamp, resolve

        settings = resolve(EncoderSettings())
        weights = (encoder_stamp(settings) or {}).get("weights")
    except Exception as error:  # reported above; a broken install may raise anything
        return f"weights for images: unknown ({error})"
    name = f"{settings.name} {settings.model}, {settings.pretrained}"
    if weights:
        return f"weights for images: {name}: on this machine"
    return (
        f"weights for images: {name}: not on this machine; the first run with images "
        "fetches them. ggeur.encoder.name hog needs none"
    )
