"""Facts about messages that both sides of a federation know in advance."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import Compression, Statistics
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import NEEDS, Model, num_parameters


@dataclass(frozen=True)
class StatisticsForm:
    """How a client's statistics travel.

    Attributes
    ----------
    content : {"class", "pooled", "means"}
        The scatters that travel beside counts and means: one for each class, one summed
        over classes, or none. `NEEDS` of closed forms has the same words.
    exact : bool
        Whether scatters travel in float64, not float32, so that they can be inverted.
    compression : Compression, optional
        How means and the pooled scatter are compressed. It cannot go with "class". With
        compression `exact` has no effect.
    weighted : bool
        Whether rows have weights, and their sums travel beside the counts.
    """

    content: str = "class"
    exact: bool = False
    compression: Compression | None = None
    weighted: bool = False

    def __post_init__(self):
        if self.content not in NEEDS:
            raise ValueError(f"content must be one of {NEEDS}, got {self.content!r}")
        if self.compression is not None and self.content == "class":
            raise ValueError(
                "compression needs the content 'pooled' or 'means'; the scatters of "
                "single classes cannot be compressed"
            )

    @property
    def by_class(self) -> StatisticsForm:
        """A copy of this form with a whole scatter for each class."""
        return StatisticsForm("class", self.exact)


#: The paper's form.
EACH_CLASS = StatisticsForm()


@dataclass(frozen=True)
class MessageSchema:
    """The facts by which received messages are checked.

    Attributes
    ----------
    num_classes : int
    dim : int
        Of the embeddings.
    num_parameters : int or None
        The number of weights that travel; None if this number varies.
    statistics : StatisticsForm
    pooled_geometry : bool
        Whether the server sends one shape for all classes, not one for each.
    counted_prototypes : bool
        Whether prototypes are class means over all clients and come with counts.
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
        """Empty statistics of the kind that travels."""
        content = self.statistics.content
        return Statistics.empty(self.num_classes, self.dim, content)
