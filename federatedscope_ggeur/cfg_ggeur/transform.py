"""Apply and check FederatedScope's key `data.transform`, a transform of embeddings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.keys import get_key
from federatedscope_ggeur.cfg_ggeur.text import uses_text
from federatedscope_ggeur.data import (
    NO_TRANSFORM,
    TRANSFORMS,
    is_image_type,
    named_transform,
    transform_rows,
)
from federatedscope_ggeur.data.transforms import names_listed, projected, rows_before
from federatedscope_ggeur.errors import ConfigError, DataError, shown


def row_transform(cfg) -> str:
    """The name of the transform that a run applies to embeddings; "none" for no
    transform.

    It is the name in ``data.transform``. Under differential privacy it can be the name
    of a projection instead.
    """
    named = named_transform(_listed(cfg))
    if named == NO_TRANSFORM and cfg.ggeur.use and cfg.ggeur.privacy.dp.epsilon > 0:
        own = cfg.ggeur.privacy.dp
        return projected(int(own.project), int(own.project_seed))
    return named


def row_preparation(cfg, encoder: str = "") -> Callable[[Tensor], Tensor] | None:
    """The function that prepares rows of embeddings [n, D]; None if rows are not
    changed.

    `encoder` is the name of the encoder in the run's results. It states how many
    dimensions rows had before a projection. The function raises `DataError` for rows
    with other dimensions.
    """
    chosen = row_transform(cfg)
    if chosen == NO_TRANSFORM:
        return None
    return partial(_prepared, transform=chosen, width=rows_before(encoder))


def _prepared(rows: Tensor, transform: str, width: int | None) -> Tensor:
    if width not in (None, rows.shape[1]):
        raise DataError(
            f"features: the rows have {rows.shape[1]} dimensions, but this run takes "
            f"and projects embeddings of {width} dimensions"
        )
    return transform_rows(rows, transform)


def check_projected(cfg, dim: int) -> None:
    """Check rows that Python code gives to a run whose settings ask for a projection.

    Raises
    ------
    ConfigError
        The rows have more dimensions than the projection leaves.
    """
    most = int(cfg.ggeur.privacy.dp.project)
    if cfg.ggeur.privacy.dp.epsilon > 0 and 0 < most < dim:
        raise ConfigError(
            f"ggeur.privacy.dp.project: is {most}, but the rows, which have {dim} "
            "dimensions, are given to the run and not projected; set the key to 0"
        )


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
    names, known = names_listed(_listed(cfg)), ", ".join(TRANSFORMS)
    ours = [name for name in names if name in TRANSFORMS]
    unknown = [name for name in names if isinstance(name, str) and name not in ours]
    if unknown and not is_of_images:
        raise ConfigError(
            f"data.transform: must be a list with one of {known}; got "
            f"{shown(unknown[0])}"
        )
    if len(ours) > 1:
        raise ConfigError(f"data.transform: must name one of {known}, got {ours}")
    chosen = named_transform(_listed(cfg))
    if chosen == NO_TRANSFORM:
        return
    if cfg.ggeur.use and cfg.ggeur.privacy.dp.epsilon > 0:
        raise ConfigError(
            "data.transform: must be [] with ggeur.privacy.dp.epsilon, which scales "
            "embeddings to length 1 and projects them (ggeur.privacy.dp.project)"
        )
    if is_of_images:
        raise ConfigError(
            f"data.transform: {chosen} is for embeddings, but data.type "
            f"{cfg.data.type} has images; remove it. To scale the embeddings of "
            "images to length 1, set ggeur.encoder.normalize"
        )
    if chosen != "l2" and uses_text(cfg.ggeur):
        raise ConfigError(
            f"data.transform: {chosen} changes the embeddings but not the text "
            "features of the classes, so the two do not fit; use either the transform "
            "or text features"
        )


def _listed(cfg) -> list:
    try:
        return get_key(cfg, "data.transform")
    except KeyError:
        return []
