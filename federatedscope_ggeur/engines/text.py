"""Loads the text features that a config needs, for every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.devices import encoder_device
from federatedscope_ggeur.cfg_ggeur.encoding import encoding_settings
from federatedscope_ggeur.cfg_ggeur.method_settings import options_of
from federatedscope_ggeur.cfg_ggeur.text import uses_text
from federatedscope_ggeur.cfg_ggeur.transform import row_preparation
from federatedscope_ggeur.data import TextFeatures
from federatedscope_ggeur.data.text.features import TEXT, is_text_file, read_text_file
from federatedscope_ggeur.data.transforms import rows_before
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.text import TEXT_MODELS, ClassTexts, TextPart


def class_texts(
    cfg,
    names: Sequence[str],
    dim: int,
    identity: Mapping[str, object] | None = None,
    encoder: str = "",
) -> ClassTexts | None:
    """Load text features of the classes `names`; None if the run needs none.

    They come from ``text.npz`` beside the embeddings, if this file exists. If not, the
    encoder of ``ggeur.encoder`` makes them. `identity` is that of the encoder that
    embedded the images. If the run projects the embeddings, it projects the text
    features, too. `encoder` is the run's name for the embeddings.

    Raises
    ------
    ConfigError, DataError
        There are no text features, or their dimension is not `dim`.
    """
    if not uses_text(cfg.ggeur):
        return None
    before = rows_before(encoder)
    found = text_features(cfg, names, before or dim, identity)
    features, prepare = found.features, row_preparation(cfg, encoder)
    if before is not None and prepare is not None:
        features = prepare(features)
    if features.shape != (len(names), dim):
        raise ConfigError(
            f"ggeur.encoder: its text features have D = {found.features.shape[1]}, but "
            f"the embeddings have D = {dim}; name the model that made the embeddings"
        )
    chosen = cfg.ggeur.text
    part = TEXT_MODELS.get(chosen.model)
    prompts = None
    if part is not None and part.learns_prompts:
        prompts = _prompts(cfg, names, identity, part)
    return ClassTexts(
        features,
        found.scale,
        found.key,
        prior=float(chosen.prior),
        ensemble=float(chosen.ensemble),
        prompts=prompts,
    )


def _prompts(cfg, names: Sequence[str], identity, part: type[TextPart]):
    from federatedscope_ggeur.data.text.load import load_tower
    from federatedscope_ggeur.data.text.prompted import PromptedClasses

    encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
    tower, _ = load_tower(encoding, identity)
    return PromptedClasses(tower, names, options_of(part, cfg.ggeur)["n_ctx"])


def text_key(text: ClassTexts | None) -> str:
    """The key of the text features in a handshake; "" if there are none."""
    return "" if text is None else text.key


def text_features(
    cfg, names: Sequence[str], dim: int, identity: Mapping[str, object] | None
) -> TextFeatures:
    """Load text features from ``text.npz`` beside the embeddings, or encode them."""
    if identity is None:
        path = Path(cfg.data.root).expanduser() / f"{TEXT}.npz"
        if is_text_file(path):
            return read_text_file(path, len(names), dim)
    # Imported here: runs without text do not need it.
    from federatedscope_ggeur.data.text.load import load_text

    encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
    return load_text(names, cfg.ggeur.text.templates, encoding, identity).found
