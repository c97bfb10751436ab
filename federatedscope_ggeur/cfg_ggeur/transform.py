"""Apply and check FederatedScope's key `data.transform`, a transform of embeddings.

What a config's run prepares of its classes' names before it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module

from torch import Tensor

from federatedscope_ggeur.data import (
    NO_TRANSFORM,
    TRANSFORMS,
    Expected,
    Given,
    is_image_type,
    named_transform,
)
from federatedscope_ggeur.data.rows import NOT_KNOWN
from federatedscope_ggeur.data.transforms import names_listed, rows_before
from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.extras import Manifest, Preparation, manifests
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import due_exchanges
from federatedscope_ggeur.federation.settings import Prepared

from .demands import demands_of, listed_transforms
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


def row_transform(cfg) -> str:
    """The name of the transform that a run applies to embeddings; "none" for no
    transform.

    It is the name in ``data.transform``, or that of a transform that an exchange of the
    run brings.
    """
    named = named_transform(listed_transforms(cfg))
    if named != NO_TRANSFORM or not cfg.ggeur.use:
        return named
    return _brought_by(demands_of(cfg))


def _brought_by(run: Demands) -> str:
    brought = (part.transform(run) for part in due_exchanges(run))
    return next(filter(None, brought), NO_TRANSFORM)


def expected_rows(
    cfg,
    class_names: Sequence[str],
    encoder: str,
    given: Given,
    run: Demands | None = None,
) -> Expected:
    """What the head of a run with `cfg` expects of rows.

    `encoder` is the name of the encoder in the run's results. It states how many
    dimensions rows had before a projection. `given` is what is known of the run's own
    rows; with noise nothing exact of them stays in it. `run` has the facts of the run,
    if somebody has worked them out.
    """
    how, unit = named_transform(listed_transforms(cfg)), given.unit_length
    width = given.dim or rows_before(encoder)
    if cfg.ggeur.use:
        run = run or demands_of(cfg)
        how = _brought_by(run) if how == NO_TRANSFORM else how
        unit = None if run.noisy else unit
    if how == NO_TRANSFORM:  # rows of a run whose extra is gone are prepared as then
        how = given.transform
    known = replace(given, transform=how, dim=width, unit_length=unit)
    return Expected(tuple(class_names), encoder, known)


def row_preparation(cfg, encoder: str) -> Callable[[Tensor], Tensor] | None:
    """The function that prepares rows of embeddings [n, D]; None if rows are not
    changed.

    `encoder` is as in `expected_rows`. The function raises `DataError` for rows with
    other dimensions.
    """
    expected = expected_rows(cfg, (), encoder, NOT_KNOWN)
    return None if expected.given.transform == NO_TRANSFORM else expected.take


def check_transform(cfg) -> None:
    """Check that ``data.transform`` is for embeddings and fits the other settings.

    Transforms of images, as FederatedScope writes them, have no effect here and are
    accepted.

    Raises
    ------
    ConfigError
        The transform is unknown, or contradicts other settings.
    """
    try:
        is_of_images = is_image_type(cfg.data.type)
    except ConfigError:
        return  # another check reports an unknown data.type
    names, known = names_listed(listed_transforms(cfg)), ", ".join(TRANSFORMS)
    ours = [name for name in names if name in TRANSFORMS]
    unknown = [name for name in names if isinstance(name, str) and name not in ours]
    if unknown and not is_of_images:
        raise ConfigError(
            f"data.transform: must be a list with one of {known}; got "
            f"{shown(unknown[0])}"
        )
    if len(ours) > 1:
        raise ConfigError(f"data.transform: must name one of {known}, got {ours}")
    chosen = named_transform(listed_transforms(cfg))
    if chosen == NO_TRANSFORM:
        return
    if is_of_images:
        raise ConfigError(
            f"data.transform: {chosen} is for embeddings, but data.type "
            f"{cfg.data.type} has images; remove it. To scale the embeddings of "
            "images to length 1, set ggeur.encoder.normalize"
        )
    how = preparation(cfg)
    if chosen != "l2" and how is not None:
        raise ConfigError(
            f"data.transform: {chosen} changes the embeddings but not the {how.what} "
            "of the classes, so the two do not fit; use either the transform or "
            f"{how.what}"
        )
