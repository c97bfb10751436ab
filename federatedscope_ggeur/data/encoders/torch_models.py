"""What encoders that are torch models share: weights files, device, forward pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from federatedscope_ggeur import weights
from federatedscope_ggeur.downloads import Remote, find
from federatedscope_ggeur.errors import ConfigError

from .base import Encoder, EncoderSettings
from .frames import Frame, frame_of

KEY = "ggeur.encoder.pretrained"
#: What an error about missing weights offers beside a file fetched by hand.
WITHOUT = ". Or try it without weights: ggeur.encoder.name hog"
RANDOM = "none"
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def is_random(pretrained: str) -> bool:
    return pretrained.lower() == RANDOM


def local_file(pretrained: str) -> Path | None:
    """The file that ``ggeur.encoder.pretrained`` names, see `weights.local_file`."""
    return weights.local_file(pretrained, KEY)


def places(settings: EncoderSettings) -> list[str]:
    """The settings that name files, for `register_encoder`.

    That is ["pretrained"], or [] if the setting is a tag of weights.
    """
    try:
        named = local_file(settings.pretrained) is not None
    except ConfigError:
        named = True
    return ["pretrained"] * named


def check_readable(path: Path) -> None:
    """Refuse a file that is no weights file, or that could only be unpickled unsafely.

    The libraries read the file again after this check. Some libraries fall back to
    unsafe reading if safe reading fails. A file that passes this check can be read
    safely.

    Raises
    ------
    ConfigError
        The file cannot be read safely.
    """
    weights.read_weights(path, KEY)


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
    if path is None:
        return {"library": library, "weights": None}
    status = path.stat()
    stamp = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    return {"library": library, "weights": stamp}


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
    settings: EncoderSettings,
    device: torch.device,
    title: str,
    identity: Mapping[str, object],
    forward: Callable[[Tensor], Tensor],
    transform: Callable[..., Any],
    **more: Any,
) -> Encoder:
    """Make an `Encoder` of a frozen model on `device`: its `forward`, its `transform`.

    The precision is added to title and identity. So is the fact whether features are
    scaled to length 1. `more` are other fields of `Encoder`.

    Raises
    ------
    ConfigError
        `device` cannot compute in this precision.
    """
    if settings.precision == "fp16" and device.type == "cpu":
        raise ConfigError(
            "ggeur.encoder.precision: fp16 needs a GPU; take bf16 or fp32 on the CPU"
        )
    frame = frame_of(transform)
    own = {"normalize": settings.normalize, "precision": settings.precision}
    return Encoder(
        title=f"{title}, {settings.precision}" + ", normalised" * settings.normalize,
        identity={**identity, **own},
        preprocess=transform if frame is None else frame.shape,
        encode=_forward_pass(forward, device, frame, **own),
        frame=frame,
        device=device,
        **more,
    )


def state_hash(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers of a model, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    return digest.hexdigest()


def _forward_pass(
    forward: Callable[[Tensor], Tensor],
    device: torch.device,
    frame: Frame | None,
    normalize: bool,
    precision: str,
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
