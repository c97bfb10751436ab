"""Device, precision and forward pass of encoders that are torch models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn

from federatedscope_ggeur.downloads import Remote, find
from federatedscope_ggeur.errors import ConfigError

from .base import Encoder, EncoderSettings, file_stamp, local_file
from .frames import Frame

RANDOM = "none"
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def is_random(pretrained: str) -> bool:
    return pretrained.lower() == RANDOM


def pick_device(name: str) -> torch.device:
    """The device called "auto" (a GPU if there is one), "cpu", "cuda" or e.g. "cuda:1".

    Raises
    ------
    ConfigError
        This machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"ggeur.encoder.device: there is no '{name}', because torch finds "
            f"{torch.cuda.device_count()} GPUs; set cpu or auto"
        )
    return device


def check_precision(precision: str, device: torch.device) -> None:
    """Raise `ConfigError` if `device` cannot compute in `precision`."""
    if precision == "fp16" and device.type == "cpu":
        raise ConfigError(
            "ggeur.encoder.precision: fp16 needs a GPU; take bf16 or fp32 on the CPU"
        )


def library_stamp(
    name: str,
    package: str,
    settings: EncoderSettings,
    remote: Callable[[EncoderSettings], Remote],
) -> dict[str, str | None]:
    """The stamp of an encoder whose model is from `package`, see `register_encoder`.

    `remote` returns the place of the published weights, or raises `ConfigError`.
    """
    try:
        library = f"{name} {version(package)}"
        if is_random(settings.pretrained):
            return {"library": f"{library}, torch {torch.__version__}"}
        path = local_file(settings.pretrained) or find(remote(settings))
    except (PackageNotFoundError, ImportError, ConfigError):
        return {"weights": None}
    return {"library": library, "weights": None if path is None else file_stamp(path)}


@contextmanager
def making(library: str, name: str, title: str, seed: int = 0) -> Iterator[None]:
    """A context in which a library makes a model, always with the same random weights.

    So the setting "none" for weights names one set of random weights.

    Raises
    ------
    ConfigError
        The library failed. The error names the model and the `title` of its weights.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    except Exception as error:  # the libraries, torch and the hub raise many kinds
        raise ConfigError(
            f"{library} cannot make the model {name} with {title}: "
            f"{type(error).__name__}: {error!s:.500}"
        ) from error


def model_encoder(
    settings: EncoderSettings, title: str, identity: Mapping[str, object], **parts: Any
) -> Encoder:
    """Make an `Encoder` from its `parts`.

    The precision is added to title and identity. So is the fact whether features are
    scaled to length 1.
    """
    normalised = ", normalised" if settings.normalize else ""
    own = {"normalize": settings.normalize, "precision": settings.precision}
    title = f"{title}, {settings.precision}{normalised}"
    return Encoder(title, {**identity, **own}, **parts)


def state_hash(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers of a model, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    return digest.hexdigest()


def forward_pass(
    forward: Callable[[Tensor], Tensor],
    device: torch.device,
    precision: str,
    normalize: bool,
    frame: Frame | None = None,
) -> Callable[[Tensor], Tensor]:
    """Make an encoder's `encode` of `forward`: frozen, on `device`, in `precision`.

    With a `frame`, bytes are normalised on the device. Floats are normalised already.
    """

    @torch.inference_mode()
    def encode(batch: Tensor) -> Tensor:
        with ExitStack() as stack:
            if device.type == "cuda" and precision == "fp32":
                # cuDNN's default, TF32, keeps 10 bits of a convolution's operands.
                flags = {"enabled": True, "deterministic": True, "allow_tf32": False}
                stack.enter_context(torch.backends.cudnn.flags(**flags))
            if precision in _DTYPES:
                stack.enter_context(torch.autocast(device.type, _DTYPES[precision]))
            batch = batch.to(device, non_blocking=True)
            if frame is not None and batch.dtype == torch.uint8:
                batch = frame.normalise(batch)
            features = forward(batch).float()
        return nn.functional.normalize(features, dim=1) if normalize else features

    return encode
