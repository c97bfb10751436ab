"""Find the weights of an open_clip model, and what is known about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from torch import Tensor

from federatedscope_ggeur.data.encoders.base import EncoderSettings
from federatedscope_ggeur.data.encoders.model import is_random
from federatedscope_ggeur.data.encoders.quick_gelu import (
    beside,
    needs_quick_gelu,
    plain_name,
    trained_with,
)
from federatedscope_ggeur.data.encoders.weights import (
    check_readable,
    is_script,
    local_file,
    read_script,
)
from federatedscope_ggeur.downloads import Remote, obtain, sha256_file
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.weights import parameter_bytes

_PREPROCESS = ("mean", "std", "interpolation", "resize_mode")
_FILENAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_SHA256_DIGITS = 64
#: Entries of OpenAI's files that are not weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")


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
    if is_random(settings.pretrained):
        title = "random weights"
        trained = in_config if asked == "auto" else asked == "with"
        wanted = needs_quick_gelu(settings.model, in_config, trained, asked, title)
        return Weights(title, wanted)
    path = local_file(settings.pretrained)
    if path is None:
        return _published(settings, in_config)
    digits, title = sha256_file(path), f"weights {path.name}"
    published = _known_file(path.name, digits)
    trained = trained_with(path, published)
    if asked == "auto" and published and _is_openai(digits):
        asked = "with"
    wanted = needs_quick_gelu(settings.model, in_config, trained, asked, f"the {title}")
    found = beside(path).get("preprocess_cfg") or {}
    return _read(title, wanted, path, digits, found)


def _published(settings: EncoderSettings, in_config: bool) -> Weights:
    tag, asked = _tag(settings), settings.quick_gelu
    title = f"weights {settings.pretrained}"
    trained = bool(tag.get("quick_gelu", False))
    # All models of OpenAI have QuickGELU, but their names do not say so.
    if asked == "auto" and trained and settings.pretrained.lower() == "openai":
        asked = "with"
    wanted = needs_quick_gelu(settings.model, in_config, trained, asked, f"the {title}")

    def size() -> int:
        library = import_module("open_clip")
        with root_logger_kept():
            return parameter_bytes(lambda: library.create_model(settings.model))

    path = obtain(
        remote_of(settings),
        f"open_clip {settings.model}, {settings.pretrained}",
        size,
        "ggeur.encoder.pretrained FILE ggeur.encoder.quick_gelu "
        + ("with" if wanted else "without"),
    )
    return _read(title, wanted, path, sha256_file(path), tag)


def _read(title: str, wanted: bool, path: Path, digits: str, found: dict) -> Weights:
    preprocess = {f"image_{key}": found[key] for key in _PREPROCESS if found.get(key)}
    if not is_script(path):
        check_readable(path)
        return Weights(title, wanted, path, digits, None, preprocess)
    if not _is_openai(digits):
        raise ConfigError(
            f"'{path}' is a TorchScript program. It is not run, because it is not one "
            "of OpenAI's own. Save the weights alone: "
            "torch.save(torch.jit.load(FILE).state_dict(), NEW)"
        )
    tensors = read_script(path)
    for name in _NOT_WEIGHTS:
        tensors.pop(name, None)
    return Weights(title, wanted, None, digits, tensors, preprocess)


def _tag(settings: EncoderSettings) -> dict:
    """open_clip's description of the published weights `settings.pretrained`.

    Raises
    ------
    ConfigError
        The model has no such weights, or they were trained with the other kind of GELU.
    """
    registry = import_module("open_clip.pretrained")
    model, name = settings.model, settings.pretrained
    found = registry.get_pretrained_cfg(model, name)
    if found:
        return found
    plain = plain_name(model)
    if registry.get_pretrained_cfg(plain, name):
        raise ConfigError(
            f"ggeur.encoder.model: '{model}' has QuickGELU, but the weights {name} "
            f"were trained without it; take the model {plain}"
        )
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
