"""``doctor``: what is installed, what is missing for which feature, how to get it."""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import federatedscope_ggeur

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
    ("matplotlib", "matplotlib", "curves"),
    ("torchvision", "torchvision", "image data sets"),
    ("open_clip_torch", "open_clip", "CLIP embeddings"),
)


def diagnose() -> tuple[str, bool]:
    """A report for a person, and whether all core packages work."""
    lines = [
        f"federatedscope_ggeur {federatedscope_ggeur.__version__} in "
        f"{Path(federatedscope_ggeur.__file__).parent}",
        f"Python {platform.python_version()} in {sys.prefix}",
        "",
    ]
    healthy = True
    for package, module, purpose in _CORE:
        state, works = _state_of(package, module)
        healthy &= works
        lines.append(f"{'ok     ' if works else 'MISSING'} {package}: {state}")
        if not works:
            lines.append(f"        needed for {purpose}; pip install {package}")
    lines += ["", _accelerator(), _federatedscope()]
    return "\n".join(lines), healthy


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
    if find_spec("torch") is None:
        return "accelerator: unknown without torch"
    import torch

    if torch.cuda.is_available():
        return (
            f"accelerator: {torch.cuda.get_device_name(0)} (not used by this release)"
        )
    return "accelerator: none, and none is needed for heads on embeddings"


def _federatedscope() -> str:
    optional = (
        "the embedded engine needs none of it; this release has no plugin for it yet"
    )
    try:
        found = find_spec("federatedscope")
    except (ImportError, ValueError):
        found = None
    if found is not None:
        where = found.origin or "an unknown place"
        return f"FederatedScope: importable from {where}; {optional}"
    home = os.environ.get("FEDERATEDSCOPE_HOME")
    if home:
        there = (Path(home) / "federatedscope" / "main.py").is_file()
        state = "a checkout is there" if there else "but no checkout is there"
        return f"FederatedScope: FEDERATEDSCOPE_HOME is {home}, {state}; {optional}"
    return (
        "FederatedScope: not installed, and FEDERATEDSCOPE_HOME is not set; "
        f"{optional}. To get it: git clone https://github.com/alibaba/FederatedScope"
    )
