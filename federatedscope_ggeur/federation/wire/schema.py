"""What both sides of a federation know beforehand about each other's messages."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import (
    ClassStatistics,
    Compression,
    MeanStatistics,
    SummedStatistics,
)
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import NEEDS, Model, num_parameters
from federatedscope_ggeur.models.closed_forms import Statistics


@dataclass(frozen=True)
class StatisticsForm:
    """How a client's statistics travel.

    Attributes
    ----------
    content : {"class", "pooled", "means"}
        Beside counts and means: a scatter for each class, one summed over classes, or
        none. Closed forms name what they need by the same words.
    exact : bool
        Scatters in float64 in place of float32, for what inverts them.
    compression : Compression, optional
        How means and scatter are cut and rounded. Not with "class"; `exact` has no
        meaning then.
    """

    content: str = "class"
    exact: bool = False
    compression: Compression | None = None

    def __post_init__(self):
        if self.content not in NEEDS:
            raise ValueError(f"content must be one of {NEEDS}, got {self.content!r}")
        if self.compression is not None and self.content == "class":
            raise ValueError("only one pooled scatter can be compressed")

    def of(self, statistics: ClassStatistics) -> Statistics:
        """Of statistics by class what travels."""
        if self.content == "means":
            return MeanStatistics.of(statistics)
        if self.content == "pooled":
            return SummedStatistics.from_classes(statistics)
        return statistics

    @property
    def by_class(self) -> StatisticsForm:
        """The same with a scatter for each class, whole."""
        return StatisticsForm("class", self.exact)


#: The paper's form.
EACH_CLASS = StatisticsForm()


@dataclass(frozen=True)
class MessageSchema:
    """What received messages are checked against.

    Attributes
    ----------
    num_classes : int
    dim : int
        Of the embeddings.
    num_parameters : int or None
        Of the weights that travel; None if their number varies.
    statistics : StatisticsForm
    pooled_geometry : bool
        One shape for all classes goes down, not one for each.
    counted_prototypes : bool
        Prototypes are class means over all clients, and come with counts.
    """

    num_classes: int
    dim: int
    num_parameters: int | None
    statistics: StatisticsForm = EACH_CLASS
    pooled_geometry: bool = False
    counted_prototypes: bool = False

    @classmethod
    def of(
        cls,
        model: Model,
        method: Method,
        statistics: StatisticsForm,
        pooled_geometry: bool = False,
        counted_prototypes: bool = False,
    ) -> MessageSchema:
        """The schema of a federation that trains `model` by `method`."""
        size: int | None = num_parameters(model) if method.federated else 0
        if method.federated and not model.fixed_size:
            size = None
        return cls(
            num_classes=model.num_classes,
            dim=model.in_features,
            num_parameters=size,
            statistics=statistics,
            pooled_geometry=pooled_geometry,
            counted_prototypes=counted_prototypes,
        )

    @property
    def no_statistics(self) -> Statistics:
        """No statistics at all, of the kind that travels."""
        return self.statistics.of(ClassStatistics.empty(self.num_classes, self.dim))
