"""FederatedScope's `data.transform`, which names a transform of embeddings."""

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
    """The name in `TRANSFORMS` that ``data.transform`` has; "none" without one.

    Differential privacy may add the name of its projection.
    """
    named = named_transform(_listed(cfg))
    if named == NO_TRANSFORM and cfg.ggeur.use and cfg.ggeur.privacy.dp.epsilon > 0:
        own = cfg.ggeur.privacy.dp
        return projected(int(own.project), int(own.project_seed))
    return named


def row_preparation(cfg, encoder: str = "") -> Callable[[Tensor], Tensor] | None:
    """The function that transforms rows [n, D]; None if they stay as they are.

    It raises `DataError` if the run projects embeddings by `encoder` and the rows are
    not as wide as these.
    """
    chosen = row_transform(cfg)
    if chosen == NO_TRANSFORM:
        return None
    return partial(_prepared, transform=chosen, width=rows_before(encoder))


def _prepared(rows: Tensor, transform: str, width: int | None) -> Tensor:
    if width not in (None, rows.shape[1]):
        raise DataError(
            f"features: rows of {rows.shape[1]} dimensions, and the run's embeddings "
            f"have {width}, which it projects"
        )
    return transform_rows(rows, transform)


def check_projected(cfg, dim: int) -> None:
    """Refuse rows given to a run that should have been projected.

    Raises
    ------
    ConfigError
    """
    most = int(cfg.ggeur.privacy.dp.project)
    if cfg.ggeur.privacy.dp.epsilon > 0 and 0 < most < dim:
        raise ConfigError(
            f"ggeur.privacy.dp.project: is {most}, and rows that are given to a run "
            f"are taken as they are, with {dim} dimensions; set it to 0"
        )


def check_transform(cfg) -> None:
    """Refuse a transform that is not for embeddings, or does not fit other settings.

    Transforms of images, as FederatedScope writes them, have no effect here.

    Raises
    ------
    ConfigError
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
            f"data.transform: embeddings take one of {known}, in a list; got "
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
            f"data.transform: {chosen} is for embeddings, and data.type "
            f"{cfg.data.type} has images; ggeur.encoder.normalize scales what an "
            "encoder makes of them to length 1"
        )
    if chosen != "l2" and uses_text(cfg.ggeur):
        raise ConfigError(
            f"data.transform: {chosen} changes the embeddings but not the text "
            "features of the classes, so they do not fit; use only one of them"
        )


def _listed(cfg) -> list:
    try:
        return get_key(cfg, "data.transform")
    except KeyError:
        return []
