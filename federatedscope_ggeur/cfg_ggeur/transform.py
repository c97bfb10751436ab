"""Apply and check FederatedScope's key `data.transform`, a transform of embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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
from federatedscope_ggeur.data.transforms import names_listed, projected, rows_before
from federatedscope_ggeur.errors import ConfigError, shown

from .keys import get_key
from .prepared import preparation


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


def expected_rows(
    cfg, class_names: Sequence[str], encoder: str, given: Given
) -> Expected:
    """What the head of a run with `cfg` expects of rows.

    `encoder` is the name of the encoder in the run's results. It states how many
    dimensions rows had before a projection. `given` is what is known of the run's own
    rows; under differential privacy nothing exact of them stays in it.
    """
    noisy = bool(cfg.ggeur.use) and cfg.ggeur.privacy.dp.epsilon > 0
    unit = None if noisy else given.unit_length
    width = given.dim or rows_before(encoder)
    known = replace(given, transform=row_transform(cfg), dim=width, unit_length=unit)
    return Expected(tuple(class_names), encoder, known)


def row_preparation(cfg, encoder: str = "") -> Callable[[Tensor], Tensor] | None:
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
    how = preparation(cfg)
    if chosen != "l2" and how is not None:
        raise ConfigError(
            f"data.transform: {chosen} changes the embeddings but not the {how.what} "
            "of the classes, so the two do not fit; use either the transform or "
            f"{how.what}"
        )


def _listed(cfg) -> list:
    try:
        return get_key(cfg, "data.transform")
    except KeyError:
        return []
