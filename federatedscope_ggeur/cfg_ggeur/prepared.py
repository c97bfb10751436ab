"""What a config's run prepares of its classes' names before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module

from federatedscope_ggeur.extras import Manifest, Preparation, manifests
from federatedscope_ggeur.federation.prepared import Prepared

from .keys import get_key


def preparing(cfg) -> Manifest | None:
    """The extra that prepares something for a run with `cfg`; None if none does."""
    read = partial(get_key, cfg.ggeur)
    for manifest in manifests().values():
        if manifest.prepares is not None and manifest.prepares.is_due(read):
            return manifest
    return None


def preparation(cfg) -> Preparation | None:
    """What `preparing` prepares; None if it is nothing."""
    manifest = preparing(cfg)
    return None if manifest is None else manifest.prepares


def prepared(
    cfg,
    names: Sequence[str],
    dim: int,
    identity: Mapping[str, object] | None = None,
    encoder: str = "",
) -> Prepared | None:
    """Prepare what a run needs for the classes `names`; None if it needs nothing.

    `dim` is that of the embeddings, `identity` that of the encoder that embedded the
    images, and `encoder` the run's name for the embeddings.

    Raises
    ------
    ConfigError, DataError
        It cannot be made, or does not fit the embeddings.
    """
    how = preparation(cfg)
    if how is None:
        return None
    return import_module(how.module).prepared(cfg, names, dim, identity, encoder)
