"""Makes the global shapes of the merged statistics, which clients get."""

from __future__ import annotations

import torch

from federatedscope_ggeur.geometry import GeometricShape, Space, Statistics

from .messages import Geometry

#: Covariances arrive rounded to float32. The noise is at most 1e-7 of the largest
#: eigenvalue.
TRAVEL_PRECISION = 4 * torch.finfo(torch.float32).eps


def global_geometry(statistics: Statistics, space: Space, pooled: bool) -> Geometry:
    """Compute the shape of every class from merged statistics.

    Shapes are in `space`. With `pooled` all classes have one shape, also classes
    without statistics.

    Raises
    ------
    StatisticsError
        The statistics have no scatter, or not one for each class where it is needed.
    """
    held = space.statistics(statistics.to("pooled" if pooled else "class"))
    if pooled:
        if not held.classes:
            return Geometry({}, pooled=True)
        one = GeometricShape.pooled(held, TRAVEL_PRECISION)
        return Geometry(dict.fromkeys(range(held.num_classes), one), pooled=True)
    shape = GeometricShape.from_statistics
    return Geometry({c: shape(held, c, TRAVEL_PRECISION) for c in held.classes})
