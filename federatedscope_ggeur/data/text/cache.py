"""Text features in the embedding cache. Each model, names and templates have a file."""

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
    """A SHA-256 of everything that text features depend on.

    That is the encoder's identity, the class names and the templates, in order.
    """
    parts = {"text": 1, "names": [*names], "templates": [*templates]}
    return identity_hash({"identity": dict(identity), **parts})


def text_file(folder: Path, key: str) -> Path:
    """The file of the text features with a key, beside the images' features."""
    return folder / f"text-{key[:16]}.safetensors"


def request_of(encoder: EncoderSettings) -> dict[str, object]:
    """The encoder's settings as plain values that do not depend on the machine."""
    plain = asdict(encoder)
    plain["pretrained"] = PurePath(encoder.pretrained).name
    return plain


def write_text(
    folder: Path, found: TextFeatures, each: Tensor, header: Mapping[str, object]
) -> Path:
    """Write text features to the cache; return the file.

    `each` [C, T, D] are the features of each class and template. They are written to
    the same file, in half precision.
    """
    path = text_file(folder, found.key)
    tensors = {"features": found.features, "each": each.to(torch.float16)}
    own = {"key": found.key, "logit_scale": found.scale}
    write_tensors(path, tensors, {**header, **own})
    return path


def read_text(folder: Path, key: str) -> TextFeatures | None:
    """Read the text features with a key; None if the cache lacks them.

    None, with a warning, also if their file is damaged.
    """
    return _read(text_file(folder, key), key)


def find_text(
    folder: Path, wanted: Mapping[str, object], stamp: Mapping[str, object]
) -> TextFeatures | None:
    """Find text features whose header has all `wanted` values.

    This is for an encoder of unknown identity. Their stamp must be the encoder's,
    unless its weights are not on this machine.
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
            logger.warning(
                "the cache file %s is damaged (%s) and is not used", path, error
            )


def _read(path: Path, key: str) -> TextFeatures | None:
    try:
        tensors, header = read_tensors(path)
        if header.get("key") != key:
            raise DamagedError("the file belongs to other classes or another encoder")
        return TextFeatures(tensors["features"], float(header["logit_scale"]), key)
    except FileNotFoundError:
        return None
    except (DamagedError, KeyError, TypeError, ValueError) as error:
        logger.warning(
            "the cache file %s is damaged (%s) and is made again", path, error
        )
        return None
