"""Prepares the text features that a run needs, on every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.demands import other_model_of
from federatedscope_ggeur.cfg_ggeur.keys import read
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    encoder_device,
    encoding_settings,
)
from federatedscope_ggeur.cfg_ggeur.transform import row_preparation
from federatedscope_ggeur.data import EncodingSettings
from federatedscope_ggeur.data.folder import TEXT, is_text_file
from federatedscope_ggeur.data.transforms import rows_before
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.closed_form.keys import ClosedFormKeys
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.models import CLOSED_FORMS

from .base import TextModelSettings, TextPart
from .classes import ClassTexts
from .keys import TEXT_MODELS, TextKeys
from .load import load_text, load_tower, read_text_file
from .prompts import PromptedClasses, TextMix, TextPull


def prepared(
    cfg,
    names: Sequence[str],
    dim: int,
    identity: Mapping[str, object] | None = None,
    encoder: str = "",
) -> Prepared:
    """Prepare the text features of the classes `names`; see `class_texts`."""
    texts = class_texts(cfg, names, dim, identity, encoder)
    head, own = read(cfg.ggeur, ClosedFormKeys), read(cfg.ggeur, TextKeys)
    form, other = CLOSED_FORMS.get(head.closed_form), other_model_of(cfg)
    is_told = form is not None and form.needs_known
    if isinstance(other, TextModelSettings):
        other = replace(other, texts=texts)
    return Prepared(
        texts.key,
        texts if is_told or texts.prior or texts.ensemble else None,
        other,
        TextPull(texts.weight, own.regulariser) if own.regulariser else None,
        TextMix(texts.weight, own.interpolate) if own.interpolate != 1 else None,
    )


def class_texts(
    cfg,
    names: Sequence[str],
    dim: int,
    identity: Mapping[str, object] | None = None,
    encoder: str = "",
) -> ClassTexts:
    """Load text features of the classes `names`.

    They come from ``text.npz`` beside the embeddings, if this file exists. If not, the
    encoder of ``ggeur.encoder`` makes them. `identity` is that of the encoder that
    embedded the images. If the run projects the embeddings, it projects the text
    features, too. `encoder` is the run's name for the embeddings.

    Raises
    ------
    ConfigError, DataError
        There are no text features, or their dimension is not `dim`.
    """
    before = rows_before(encoder)
    text = text_features(cfg, names, before or dim, identity)
    features, prepare = text.features, row_preparation(cfg, encoder)
    if before is not None and prepare is not None:
        features = prepare(features)
    if features.shape != (len(names), dim):
        raise ConfigError(
            f"ggeur.encoder: its text features have D = {text.features.shape[1]}, but "
            f"the embeddings have D = {dim}; name the model that made the embeddings"
        )
    own = read(cfg.ggeur, TextKeys)
    part = TEXT_MODELS.get(own.model)
    prompts = None
    if part is not None and part.learns_prompts:
        prompts = _prompts(cfg, names, identity, part)
    return replace(
        text,
        features=features,
        prior=float(own.prior),
        ensemble=float(own.ensemble),
        prompts=prompts,
    )


def _prompts(cfg, names: Sequence[str], identity, part: type[TextPart]):
    encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
    tower, _ = load_tower(encoding, identity)
    return PromptedClasses(tower, names, int(cfg.ggeur[part.name]["n_ctx"]))


def text_features(
    cfg, names: Sequence[str], dim: int, identity: Mapping[str, object] | None
) -> ClassTexts:
    """Load text features from ``text.npz`` beside the embeddings, or encode them."""
    if identity is None:
        path = Path(cfg.data.root).expanduser() / f"{TEXT}.npz"
        if is_text_file(path):
            return read_text_file(path, names, dim)
    encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
    templates = read(cfg.ggeur, TextKeys).templates
    return load_text(names, templates, encoding, identity).text


def embedded(
    cfg,
    names: Sequence[str],
    encoding: EncodingSettings,
    identity: Mapping[str, object] | None,
) -> list[str]:
    """Make missing text features of the classes; returns lines about them."""
    templates = read(cfg.ggeur, TextKeys).templates
    made = load_text(names, templates, encoding, identity)
    how = "already in the cache"
    if made.prompts:
        how = f"{made.prompts} prompts now, in {made.seconds:.1f} s"
    return [f"text features of {len(names)} classes: {how}", str(made.path)]
