"""Encoder ``open_clip``: the image side of CLIP models. Also loads both sides.

Find out whether CLIP weights were trained with QuickGELU. The model is built likewise.

The two activations differ little. With the wrong one, features look plausible but are
worse, and nothing else shows the mistake.
"""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.downloads import Remote, check_allowed, obtain, sha256_file
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.weights import load_library, parameter_bytes

from . import torch_models
from .base import Encoder, EncoderSettings, register_encoder

logger = get_logger(__name__)

#: What the name of a model ends with that open_clip builds with QuickGELU.
_SUFFIX = "-quickgelu"


def needs_quick_gelu(
    in_config: bool, trained: bool | None, setting: str, where: str
) -> bool:
    """Whether a model must be built with QuickGELU: as its weights were trained.

    Parameters
    ----------
    in_config : bool
        Whether open_clip's configuration of the model has QuickGELU.
    trained : bool or None
        Whether the weights were trained with QuickGELU; None if unknown.
    setting : str
        ``ggeur.encoder.quick_gelu``: auto, with or without.
    where : str
        A description of the weights, for messages.

    Raises
    ------
    ConfigError
        Weights and setting contradict each other. Or it is unknown how the weights were
        trained.
    """
    said = {"with": True, "without": False}.get(setting)
    if None not in (said, trained) and said != trained:
        raise ConfigError(
            f"ggeur.encoder.quick_gelu: is '{setting}', but {where} were trained "
            f"{'with' if trained else 'without'} QuickGELU; leave it at auto"
        )
    wanted = trained if said is None else said
    if wanted is None and not in_config:
        raise ConfigError(
            f"it is unknown whether {where} were trained with QuickGELU, and the wrong "
            "activation spoils the features unnoticed; set ggeur.encoder.quick_gelu to "
            "'with' (all weights of OpenAI, DFN and MetaCLIP) or 'without'"
        )
    return in_config if wanted is None else wanted


def trained_with(path: Path, published: bool | None) -> bool | None:
    """Whether a local weights file was trained with QuickGELU; None if unknown.

    Parameters
    ----------
    path : Path
        The file. An ``open_clip_config.json`` beside the file decides; downloads from
        the Hugging Face hub have one. Otherwise "quickgelu" in the file's name means
        yes.
    published : bool or None
        The answer for a published file; None for any other file.
    """
    config = beside(path).get("model_cfg")
    if isinstance(config, dict):
        return bool(config.get("quick_gelu", False))
    if published is not None:
        return published
    return True if "quickgelu" in path.name.lower() else None


def beside(path: Path) -> dict:
    """The content of ``open_clip_config.json`` beside a file; {} if there is none."""
    try:
        content = json.loads(path.with_name("open_clip_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


_PREPROCESS = ("mean", "std", "interpolation", "resize_mode")
_FILENAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_SHA256_DIGITS = 64
#: Entries of OpenAI's files that are not weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")


def _stamp(settings: EncoderSettings) -> dict[str, str | None]:
    return torch_models.library_stamp(
        "open_clip", "open_clip_torch", _plain(settings), remote_of
    )


@register_encoder(
    "open_clip",
    model="ViT-B-16",
    pretrained="openai",
    uses=("model", "pretrained", "normalize", "precision", "quick_gelu", "decode"),
    stamp=_stamp,
    places=torch_models.places,
)
def open_clip(settings: EncoderSettings, device: torch.device) -> Encoder:
    """The image features of ``encode_image``, with open_clip's preprocessing.

    `pretrained` is a tag of open_clip, a local file (safetensors, or a state dict that
    torch reads with ``weights_only``), or none.

    Raises
    ------
    ConfigError
        The model or tag is unknown. Or the weights cannot be found or downloaded, do
        not fit the model, or it is unknown with which kind of GELU they were trained.
    """
    made = load_open_clip(settings, device)
    return torch_models.model_encoder(
        settings,
        device,
        title=made.title,
        identity=made.identity,
        forward=made.model.encode_image,
        transform=made.transform,
        dim=made.dim,
        both_sides=made,
    )


@dataclass(frozen=True, eq=False)
class OpenClip:
    """A frozen model of open_clip with its weights, image and text side.

    Attributes
    ----------
    name : str
        The name of the model in open_clip.
    title : str
        A description for people, in one line.
    identity : mapping
        Everything that features depend on, except scaling and precision.
    dim : int
        D, which is the same on both sides.
    model : module
    transform : callable
        The preprocessing of images.
    """

    name: str
    title: str
    identity: Mapping[str, object]
    dim: int
    model: Any
    transform: Callable


def load_open_clip(settings: EncoderSettings, device: torch.device) -> OpenClip:
    """Load the model that `settings` name, on `device`.

    Raises
    ------
    ConfigError
        The errors of `open_clip`.
    """
    library = load_library("open_clip", "open_clip_torch", "ggeur.encoder.name")
    settings = _plain(settings)
    if settings.model not in library.list_models():
        raise ConfigError(
            f"ggeur.encoder.model: open_clip has no model '{settings.model}'; it has "
            f"{', '.join(library.list_models())}"
        )
    config = library.get_model_config(settings.model)
    weights = find_weights(settings, bool(config.get("quick_gelu", False)))
    plain = settings.model.removesuffix(_SUFFIX)
    name = settings.model if weights.quick_gelu else plain
    model, transform = _build(library, name, weights, config["text_cfg"])
    digits = weights.digits or torch_models.state_hash(model)
    model = model.to(device)
    gelu = " QuickGELU" if weights.quick_gelu else ""
    return OpenClip(
        name=name,
        title=f"open_clip {plain}{gelu}, {weights.title}",
        identity={
            "model": plain,
            "quick_gelu": weights.quick_gelu,
            "weights": digits,
            "preprocess": json.dumps(model.visual.preprocess_cfg, sort_keys=True),
        },
        dim=int(config["embed_dim"]),
        model=model,
        transform=transform,
    )


def _plain(settings: EncoderSettings) -> EncoderSettings:
    """The settings with open_clip's spelling ViT-B-16 for OpenAI's ViT-B/16."""
    return replace(settings, model=settings.model.replace("/", "-"))


def _build(library, name: str, weights: Weights, text_config: dict):
    """Make the frozen model and its preprocessing of images."""
    if "hf_model_name" in text_config:
        check_allowed()
        logger.info(
            "open_clip fetches the configuration of %s from huggingface.co; it is the "
            "text side of %s",
            text_config["hf_model_name"],
            name,
        )
    with torch_models.making("open_clip", name, weights.title), root_logger_kept():
        model, _, transform = library.create_model_and_transforms(
            name,
            pretrained=None if weights.path is None else str(weights.path),
            force_quick_gelu=weights.quick_gelu,
            pretrained_hf=False,  # no weights of the text side alone
            **(weights.preprocess or {}),
        )
        if weights.tensors is not None:
            model.load_state_dict(weights.tensors)
    return model.eval().requires_grad_(False), transform


@dataclass(frozen=True)
class Weights:
    """Weights of an open_clip model that were found.

    Parameters
    ----------
    title : str
    quick_gelu : bool
        Whether the model must be built with QuickGELU.
    path : Path or None
        The file that open_clip is to read. None for random weights and with `tensors`.
    digits : str
        The SHA-256 of the file. "" for random weights.
    tensors : dict of tensors or None
        The weights, if open_clip cannot read their file.
    preprocess : dict
        open_clip's arguments for the preprocessing with which the weights were trained.
    """

    title: str
    quick_gelu: bool
    path: Path | None = None
    digits: str = ""
    tensors: dict[str, Tensor] | None = None
    preprocess: dict | None = None


def find_weights(settings: EncoderSettings, in_config: bool) -> Weights:
    """Find the weights that `settings` name. Download them if necessary.

    Parameters
    ----------
    settings : EncoderSettings
    in_config : bool
        Whether open_clip's configuration of the model has QuickGELU.

    Raises
    ------
    ConfigError
        The weights cannot be obtained, cannot be read safely, or do not fit the model.
    """
    asked = settings.quick_gelu
    if torch_models.is_random(settings.pretrained):
        wanted = in_config if asked == "auto" else asked == "with"
        return Weights("random weights", wanted)
    path = torch_models.local_file(settings.pretrained)
    if path is None:
        return _published(settings, in_config)
    digits, title = sha256_file(path), f"weights {path.name}"
    trained = trained_with(path, _known_file(path.name, digits))
    wanted = needs_quick_gelu(in_config, trained, asked, f"the {title}")
    config = beside(path).get("preprocess_cfg") or {}
    return _read(title, wanted, path, digits, config)


def _published(settings: EncoderSettings, in_config: bool) -> Weights:
    tag, title = _tag(settings), f"weights {settings.pretrained}"
    trained, asked = bool(tag.get("quick_gelu", False)), settings.quick_gelu
    wanted = needs_quick_gelu(in_config, trained, asked, f"the {title}")

    def size() -> int:
        library = import_module("open_clip")
        with root_logger_kept():
            return parameter_bytes(lambda: library.create_model(settings.model))

    path = obtain(
        remote_of(settings),
        f"open_clip {settings.model}, {settings.pretrained}",
        size,
        "ggeur.encoder.pretrained FILE ggeur.encoder.quick_gelu "
        + ("with" if wanted else "without")
        + torch_models.WITHOUT,
    )
    return _read(title, wanted, path, sha256_file(path), tag)


def _read(title: str, wanted: bool, path: Path, digits: str, config: dict) -> Weights:
    preprocess = {f"image_{key}": config[key] for key in _PREPROCESS if config.get(key)}
    if not _is_script(path):
        torch_models.check_readable(path)
        return Weights(title, wanted, path, digits, None, preprocess)
    if not _is_openai(digits):
        raise ConfigError(
            f"'{path}' is a TorchScript program. It is not run, because it is not one "
            "of OpenAI's own. Save the weights alone: "
            "torch.save(torch.jit.load(FILE).state_dict(), NEW)"
        )
    # The file is whole: it has the checksum that OpenAI published.
    tensors = dict(torch.jit.load(str(path), map_location="cpu").state_dict())
    for name in _NOT_WEIGHTS:
        tensors.pop(name, None)
    return Weights(title, wanted, None, digits, tensors, preprocess)


def _is_script(path: Path) -> bool:
    """Whether a file is a TorchScript program with weights, as OpenAI's files are."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _tag(settings: EncoderSettings) -> dict:
    """open_clip's description of the published weights `settings.pretrained`.

    Raises
    ------
    ConfigError
        The model has no such weights.
    """
    registry = import_module("open_clip.pretrained")
    name = settings.pretrained
    for model in (settings.model.removesuffix(_SUFFIX), settings.model):
        if published := registry.get_pretrained_cfg(model, name):
            return published
    tags = registry.list_pretrained_tags_by_model(model)
    raise ConfigError(
        f"ggeur.encoder.pretrained: '{name}' is neither a file nor a tag of weights "
        f"of open_clip's {model}. Its tags: {', '.join(tags) or 'no published ones'}. "
        "Set 'none' for random weights"
    )


def remote_of(settings: EncoderSettings) -> Remote:
    """The place of the published weights `settings.pretrained`. Errors: see `_tag`."""
    tag = _tag(settings)
    repo, _, filename = tag.get("hf_hub", "").rpartition("/")
    url = tag.get("url", "")
    folder = Path("~/.cache/clip").expanduser()
    names = (filename,) if filename else _FILENAMES
    return Remote(repo, names, url, folder, _digits_in(url))


def _digits_in(url: str) -> str:
    """The first digits of a SHA-256 in a URL; "" if there are none."""
    if "openaipublic" in url:
        return url.split("/")[-2]
    if "mlfoundations" in url:
        return Path(url).stem.split("-")[-1]
    return ""


def _published_files() -> Iterator[tuple[str, str, bool]]:
    """Yield name, first SHA-256 digits and QuickGELU of every file with a URL."""
    registry = import_module("open_clip.pretrained")
    for model, name in registry.list_pretrained():
        tag = registry.get_pretrained_cfg(model, name)
        if url := tag.get("url", ""):
            trained = bool(tag.get("quick_gelu", False))
            yield url.rpartition("/")[2], _digits_in(url), trained


def _known_file(name: str, digits: str) -> bool | None:
    """Whether a published file was trained with QuickGELU; None for any other file."""
    for known, start, trained in _published_files():
        if digits.startswith(start) if start else name == known:
            return trained
    return None


def _is_openai(digits: str) -> bool:
    """Whether OpenAI published the file with this SHA-256.

    OpenAI's URLs hold all digits of the SHA-256.
    """
    known = {start for _, start, _ in _published_files()}
    return len(digits) == _SHA256_DIGITS and digits in known


@contextmanager
def root_logger_kept() -> Iterator[None]:
    """Keep open_clip from giving the root logger a handler inside this block.

    open_clip calls `logging.info`, which adds a handler if the root logger has none.
    """
    quiet = logging.NullHandler()
    logging.root.addHandler(quiet)
    try:
        yield
    finally:
        logging.root.removeHandler(quiet)
