"""Text features of a data set's classes, from a file, the cache, or the text tower."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.data.cache import DamagedError, read_tensors, write_tensors
from federatedscope_ggeur.data.encoders import (
    Encoder,
    EncoderSettings,
    build_encoder,
    check_encoder,
    encoder_stamp,
    identity_hash,
    pick_device,
    resolve,
)
from federatedscope_ggeur.data.encoding import EncodingSettings
from federatedscope_ggeur.data.labels import checked_names
from federatedscope_ggeur.errors import ConfigError, DataError, listed, shown
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.printable import get_logger

from .classes import ClassTexts
from .templates import expand, fill
from .tower import TextTower

#: CLIP models have scales up to 100. A far larger scale is a mistake.
_LARGEST_SCALE = 1e6


logger = get_logger(__name__)


def unit(rows: Tensor) -> Tensor:
    """Scale rows of shape (..., D) to length 1, in float64."""
    return torch.nn.functional.normalize(rows.double(), dim=-1)


def mean_features(each: Tensor) -> Tensor:
    """The mean text feature of each class: shape (C, D), float32.

    For features f [C, T, D], it is ``w_c = norm(mean_t norm(f_ct))``.

    Radford et al., 2021, section 3.1.4.
    """
    return unit(unit(each).mean(dim=1)).float()


def read_text_file(path: Path, class_names: Sequence[str], dim: int) -> ClassTexts:
    """Read text features from ``text.npz``.

    The file holds ``features`` [C, D], which are scaled to length 1, and
    ``logit_scale``. The latter is the factor s itself and not its logarithm (100 for
    OpenAI's ViT-B/16). An array ``class_names`` [C] says whose row is whose; without
    it the rows have the order of the data's `class_names`.

    Raises
    ------
    DataError
        The file is missing or damaged, or its shapes or names do not fit the data.
    """
    how = "numpy.savez(path, features=..., logit_scale=100.0), a row for each class"
    try:
        with np.load(path, allow_pickle=False) as archive:
            rows = np.asarray(archive["features"], dtype=np.float64)
            scale = float(np.asarray(archive["logit_scale"]).reshape(()))
            own = archive.get("class_names")
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: the file does not exist. Write it with {how}."
        ) from error
    except Exception as error:  # a damaged zip fails in many ways
        raise DataError(
            f"{path}: the file cannot be read ({error}). Write it with {how}."
        ) from error
    if rows.shape != (len(class_names), dim):
        raise DataError(
            f"{path}: 'features' has shape {list(rows.shape)}, but the data have "
            f"{len(class_names)} classes and D = {dim}."
        )
    if own is not None:
        names = checked_names(own, f"{path}: 'class_names'")
        if set(names) != set(class_names):
            raise DataError(
                f"{path}: 'class_names' are {shown(list(names))}, but the data have "
                f"the classes {shown(list(class_names))}."
            )
        rows = rows[[names.index(name) for name in class_names]]
    elif not (path.parent / "class_names.txt").exists():
        logger.warning(
            "%s: its rows are taken for the classes %s, in this order; an array "
            "class_names beside them says otherwise",
            path,
            listed(class_names, 5),
        )
    lengths = np.linalg.norm(rows, axis=1)
    if not np.isfinite(rows).all() or not (lengths > 0).all():
        raise DataError(
            f"{path}: 'features' holds NaN, infinity or a row of zeros. Write it again."
        )
    if not math.isfinite(scale) or not 0 < scale <= _LARGEST_SCALE:
        raise DataError(
            f"{path}: 'logit_scale' must be above 0 and at most {_LARGEST_SCALE:g}, "
            f"but is {scale:g}."
        )
    features = torch.from_numpy(rows / lengths[:, None]).float()
    digest = hashlib.sha256(features.numpy().tobytes() + repr(scale).encode())
    return ClassTexts(features, scale, digest.hexdigest())


#: The number of prompts that are encoded at a time.
BATCH = 64
#: What a damaged file of text features raises.
_DAMAGED = (DamagedError, OSError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class MadeText:
    """Text features, and how many prompts were encoded for them.

    Attributes
    ----------
    text : ClassTexts
    path : Path
        The file of the features.
    prompts : int
        The number of prompts that were encoded just now. 0 if the features came from
        the cache.
    seconds : float
        The time that this took, without loading the model.
    """

    text: ClassTexts
    path: Path
    prompts: int = 0
    seconds: float = 0.0


def load_tower(
    encoding: EncodingSettings, identity: Mapping[str, object] | None = None
) -> tuple[TextTower, Encoder]:
    """Load the text side of the encoder that `encoding` names, and the encoder.

    Raises
    ------
    ConfigError
        The encoder has no text side, or its weights cannot be obtained. Or it is not
        the encoder of the images, which `identity` describes.
    """
    check_encoder(encoding.encoder)
    encoder = build_encoder(encoding.encoder, pick_device(encoding.device))
    if encoder.both_sides is None:
        raise ConfigError(
            f"ggeur.encoder.name: '{encoding.encoder.name}' has no text side; set "
            "open_clip, or put text.npz beside the embeddings"
        )
    if identity is not None and dict(identity) != dict(encoder.identity):
        raise ConfigError(
            f"ggeur.encoder: text must be encoded by {encoder.name}, but another model "
            "embedded the images; set the same weights for both"
        )
    return TextTower.of(encoder.both_sides), encoder


def load_text(
    names: Sequence[str],
    templates: Sequence[str],
    encoding: EncodingSettings,
    identity: Mapping[str, object] | None = None,
) -> MadeText:
    """Get text features of the classes called `names`, from the cache or newly made.

    Parameters
    ----------
    names : sequence of str
    templates : sequence of str
        Templates, or names of lists of templates.
    encoding : EncodingSettings
        The settings for embedding images. They name the model and the cache.
    identity : mapping, optional
        The identity of the encoder that embedded the images. By default `encoding`
        names the encoder.

    Raises
    ------
    ConfigError
        The errors of `load_tower`. Or the cache cannot be written.
    """
    texts, folder = expand(templates), Path(encoding.cache).expanduser()
    asked = {
        "request": request_of(resolve(encoding.encoder)),
        "names": [*names],
        "templates": [*texts],
    }
    stamp = encoder_stamp(encoding.encoder) or {}
    if identity is not None:
        wanted = text_key(identity, names, texts)
        place = text_file(folder, wanted)
        cached = find_text([place] if place.exists() else [], {"key": wanted})
    else:
        everything = sorted(folder.glob("text-*.safetensors"))
        cached = find_text(everything, asked, stamp)
    if cached is not None:
        return MadeText(cached, text_file(folder, cached.key))
    tower, encoder = load_tower(encoding, identity)
    key = text_key(encoder.identity, names, texts)
    threads = encoding.extraction.num_threads
    logger.info("text features: %d classes, %d templates", len(names), len(texts))
    started = time.perf_counter()
    prompts = [fill(text, name) for name in names for text in texts]
    # One thread by default, because bits of a product depend on the number of threads.
    with torch_threads(threads or 1):
        rows = tower.features(prompts, BATCH)
    each = rows.reshape(len(names), len(texts), -1)
    made = ClassTexts(mean_features(each), tower.scale, key)
    seconds = time.perf_counter() - started
    header = {"identity": dict(encoder.identity), **asked, "stamp": dict(stamp)}
    path = write_text(folder, made, each, header)
    return MadeText(made, path, len(prompts), seconds)


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
    folder: Path, text: ClassTexts, each: Tensor, header: Mapping[str, object]
) -> Path:
    """Write text features to the cache; return the file.

    `each` [C, T, D] are the features of each class and template. They are written to
    the same file, in half precision.
    """
    path = text_file(folder, text.key)
    tensors = {"features": text.features, "each": each.to(torch.float16)}
    own = {"key": text.key, "logit_scale": text.scale}
    write_tensors(path, tensors, {**header, **own})
    return path


def find_text(
    paths: Iterable[Path],
    wanted: Mapping[str, object],
    stamp: Mapping[str, object] | None = None,
) -> ClassTexts | None:
    """Find text features whose header has all `wanted` values; None without any.

    Without a key among these the encoder's identity is unknown. Then the features must
    also have its `stamp`, unless its weights are not on this machine.
    """
    absent = stamp is None or ("weights" in stamp and stamp["weights"] is None)
    for path in paths:
        try:
            text, header = _read(path)
        except _DAMAGED as error:
            logger.warning(
                "the cache file %s is damaged (%s) and is not used", path, error
            )
            continue
        same = all(header.get(name) == value for name, value in wanted.items())
        if same and (absent or header.get("stamp") == stamp):
            return text
    return None


def _read(path: Path) -> tuple[ClassTexts, dict]:
    """Read the text features of a file, and its header."""
    tensors, header = read_tensors(path)
    scale = float(header["logit_scale"])
    return ClassTexts(tensors["features"], scale, header["key"]), header
