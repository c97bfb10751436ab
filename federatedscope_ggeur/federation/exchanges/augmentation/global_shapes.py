"""Makes the global shapes of the merged statistics, which clients get."""

from __future__ import annotations

import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation.wire.schema import Statistics
from federatedscope_ggeur.geometry import (
    ClassStatistics,
    GeometricShape,
    MeanStatistics,
    Space,
    SummedStatistics,
)

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
    if isinstance(statistics, MeanStatistics):
        raise StatisticsError(
            "a shape needs a covariance, but the statistics have only means"
        )
    if pooled:
        return _pooled(statistics, space)
    if not isinstance(statistics, ClassStatistics):
        raise StatisticsError(
            "shapes need the covariance of each class, but the statistics have only one"
        )
    held, shape = space.statistics(statistics), GeometricShape.from_statistics
    return Geometry({c: shape(held, c, TRAVEL_PRECISION) for c in held.classes})


def _pooled(statistics: ClassStatistics | SummedStatistics, space: Space) -> Geometry:
    if isinstance(statistics, ClassStatistics):
        statistics = SummedStatistics.from_classes(statistics)
    if not statistics.classes:
        return Geometry({}, pooled=True)
    shape = GeometricShape.pooled(space.statistics(statistics), TRAVEL_PRECISION)
    return Geometry(dict.fromkeys(range(statistics.num_classes), shape), pooled=True)
