"""``doctor``: what is installed, what is missing for which feature, how to get it."""

from __future__ import annotations

import platform
import shlex
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import federatedscope_ggeur
from federatedscope_ggeur.engines.fs import install
from federatedscope_ggeur.engines.fs.install import State
from federatedscope_ggeur.engines.fs.protobuf import outlook
from federatedscope_ggeur.errors import ConfigError

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
    lines += ["", _accelerator(), *_federatedscope()]
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
            f"accelerator: {torch.cuda.get_device_name(0)} (encoders use it; heads are "
            "trained on the CPU)"
        )
    return "accelerator: none, and none is needed for heads on embeddings"


def _federatedscope() -> list[str]:
    """Where FS is, whether it loads the plugin, how to repair what does not work."""
    try:
        package = install.find()
    except ConfigError as error:
        return [f"{error}", "        the embedded engine needs none of it"]
    if install.importable_package() is None:
        how = f"in the checkout that {install.HOME_VARIABLE} names, not importable"
    else:
        how = "importable"
    lines = [f"FederatedScope: {package} ({how}); the embedded engine needs none of it"]
    try:
        lines += [*_plugin(package), *_messages(package)]
    except ConfigError as error:
        lines.append(f"        {error}")
    missing = install.missing_packages()
    if missing:
        lines.append(f"MISSING for FederatedScope: {', '.join(missing)}")
        lines.append(
            f"        pip install {' '.join(missing)}; or all: {install.EXTRA}"
        )
    return lines


def _plugin(package: Path) -> list[str]:
    state = install.state(package)
    lines = [f"        plugin: {state.value}"]
    folder = shlex.quote(str(package))
    if state is State.ENABLED:
        lines.append(f"        run: {install.run_command(package)}")
    elif state is State.NOT_IMPORTABLE:
        lines.append(f"        pip install it, or run: {install.run_command(package)}")
    elif state is State.FOREIGN:
        lines.append(f"        move away {install.plugin_file(package)}, then:")
    if state in (State.NOT_ENABLED, State.OTHER_VERSION, State.FOREIGN):
        lines += [
            f"        federatedscope-ggeur enable {folder}",
            "        or, without enabling it: federatedscope-ggeur --engine "
            "federatedscope --cfg FILE.yaml",
        ]
    return lines


def _messages(package: Path) -> list[str]:
    try:
        return [f"        {outlook(package)}"]
    except ImportError as error:
        return [f"        protobuf compatibility: unknown ({error})"]
