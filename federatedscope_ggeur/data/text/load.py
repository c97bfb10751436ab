"""Text features of a data set's classes: from a file, the cache, or the text tower."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from federatedscope_ggeur.data.encoders import (
    Encoder,
    build_encoder,
    check_encoder,
    encoder_stamp,
    pick_device,
    resolve,
)
from federatedscope_ggeur.data.encoding import EncodingSettings
from federatedscope_ggeur.data.text.cache import (
    find_text,
    read_text,
    request_of,
    text_file,
    text_key,
    write_text,
)
from federatedscope_ggeur.data.text.features import TextFeatures, mean_features
from federatedscope_ggeur.data.text.templates import expand, fill
from federatedscope_ggeur.data.text.tower import TextTower
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

#: Prompts that are encoded at a time.
BATCH = 64


@dataclass(frozen=True)
class MadeText:
    """Text features, and how they were made.

    Attributes
    ----------
    found : TextFeatures
    path : Path
        The file of the features.
    prompts : int
        How many prompts were encoded just now; 0 if all came from the cache.
    seconds : float
        How long that took. Loading the model does not count.
    """

    found: TextFeatures
    path: Path
    prompts: int = 0
    seconds: float = 0.0


def load_tower(
    encoding: EncodingSettings, identity: Mapping[str, object] | None = None
) -> tuple[TextTower, Encoder]:
    """The text side of the encoder that `encoding` names, and the encoder.

    Raises
    ------
    ConfigError
        It has no text side, its weights cannot be obtained, or they are not those of
        `identity`, the encoder of the images.
    """
    check_encoder(encoding.encoder)
    encoder = build_encoder(encoding.encoder, pick_device(encoding.device))
    if encoder.both_sides is None:
        raise ConfigError(
            f"ggeur.encoder.name: '{encoding.encoder.name}' has no text side; take "
            "open_clip, or bring text.npz beside embeddings"
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
    """Text features of the classes called `names`. They are made if the cache has none.

    Parameters
    ----------
    names : sequence of str
    templates : sequence of str
        Templates, or names of lists of templates.
    encoding : EncodingSettings
        The settings that images are embedded with. They name the model and the cache.
    identity : mapping, optional
        The identity of the encoder that embedded the images. By default `encoding`
        names the encoder.

    Raises
    ------
    ConfigError
        As `load_tower`; or the cache cannot be written.
    """
    texts, folder = expand(templates), Path(encoding.cache).expanduser()
    asked = {
        "request": request_of(resolve(encoding.encoder)),
        "names": [*names],
        "templates": [*texts],
    }
    stamp = encoder_stamp(encoding.encoder) or {}
    if identity is not None:
        found = read_text(folder, text_key(identity, names, texts))
    else:
        found = find_text(folder, asked, stamp)
    if found is not None:
        return MadeText(found, text_file(folder, found.key))
    tower, encoder = load_tower(encoding, identity)
    key = text_key(encoder.identity, names, texts)
    threads = encoding.extraction.num_threads
    logger.info("text features: %d classes, %d templates", len(names), len(texts))
    started = time.perf_counter()
    prompts = [fill(text, name) for name in names for text in texts]
    # One thread by default: the bits of a product depend on the number of threads.
    with torch_threads(threads or 1):
        rows = tower.features(prompts, BATCH)
    each = rows.reshape(len(names), len(texts), -1)
    made = TextFeatures(mean_features(each), tower.scale, key)
    seconds = time.perf_counter() - started
    header = {"identity": dict(encoder.identity), **asked, "stamp": dict(stamp)}
    path = write_text(folder, made, each, header)
    return MadeText(made, path, len(prompts), seconds)
