"""Text features in the embedding cache: a file for each model, names, templates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath

import torch
from torch import Tensor

from federatedscope_ggeur.data.cache.files import (
    DamagedError,
    read_tensors,
    write_tensors,
)
from federatedscope_ggeur.data.encoders import EncoderSettings, identity_hash
from federatedscope_ggeur.data.text.features import TextFeatures
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


def text_key(
    identity: Mapping[str, object], names: Sequence[str], templates: Sequence[str]
) -> str:
    """A SHA-256 of all that text features depend on: the encoder's identity, class
    names and templates, in order."""
    parts = {"text": 1, "names": [*names], "templates": [*templates]}
    return identity_hash({"identity": dict(identity), **parts})


def text_file(folder: Path, key: str) -> Path:
    """The file of the features of a key, beside the images' features."""
    return folder / f"text-{key[:16]}.safetensors"


def request_of(encoder: EncoderSettings) -> dict[str, object]:
    """The encoder's settings, the same on every machine."""
    plain = asdict(encoder)
    plain["pretrained"] = PurePath(encoder.pretrained).name
    return plain


def write_text(
    folder: Path, found: TextFeatures, each: Tensor, header: Mapping[str, object]
) -> Path:
    """Write the features, and those of `each` class and template [C, T, D], rounded to
    half precision. Returns the file."""
    path = text_file(folder, found.key)
    tensors = {"features": found.features, "each": each.to(torch.float16)}
    own = {"key": found.key, "logit_scale": found.scale}
    write_tensors(path, tensors, {**header, **own})
    return path


def read_text(folder: Path, key: str) -> TextFeatures | None:
    """The features of a key. None if there are none, or if they are damaged (with a
    warning)."""
    return _read(text_file(folder, key), key)


def find_text(
    folder: Path, wanted: Mapping[str, object], stamp: Mapping[str, object]
) -> TextFeatures | None:
    """Features whose header has all `wanted` values, for an encoder of unknown
    identity.

    Their stamp must be the encoder's, unless its weights are not on this machine.
    """
    for path, header in _headers(folder):
        if any(header.get(name) != value for name, value in wanted.items()):
            continue
        absent = "weights" in stamp and stamp["weights"] is None
        if absent or header.get("stamp") == dict(stamp):
            found = _read(path, str(header.get("key")))
            if found is not None:
                return found
    return None


def _headers(folder: Path) -> Iterator[tuple[Path, dict]]:
    for path in sorted(folder.glob("text-*.safetensors")):
        try:
            yield path, json.loads(json.dumps(read_tensors(path)[1]))
        except (DamagedError, OSError) as error:
            logger.warning("%s is damaged (%s) and is skipped", path, error)


def _read(path: Path, key: str) -> TextFeatures | None:
    try:
        tensors, header = read_tensors(path)
        if header.get("key") != key:
            raise DamagedError("it belongs to other classes or another encoder")
        return TextFeatures(tensors["features"], float(header["logit_scale"]), key)
    except FileNotFoundError:
        return None
    except (DamagedError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s is damaged (%s) and is made again", path, error)
        return None
