"""What both sides of a federation know of each other's messages beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import Model, num_parameters


@dataclass(frozen=True)
class StatisticsForm:
    """How a client's statistics travel.

    Attributes
    ----------
    summed : bool
        One within-class scatter summed over classes in place of one for each class.
    exact : bool
        Scatters in float64 in place of float32, for what inverts them.
    """

    summed: bool = False
    exact: bool = False


#: As the paper has it.
EACH_CLASS = StatisticsForm()


@dataclass(frozen=True)
class MessageSchema:
    """What received messages are checked against.

    Attributes
    ----------
    num_classes : int
    dim : int
        Of the embeddings.
    num_parameters : int
        Of the weights that travel.
    statistics : StatisticsForm
    """

    num_classes: int
    dim: int
    num_parameters: int
    statistics: StatisticsForm = EACH_CLASS

    @classmethod
    def of(
        cls, model: Model, method: Method, statistics: StatisticsForm
    ) -> MessageSchema:
        """The schema of a federation that trains `model` by `method`."""
        size = num_parameters(model) if method.federated else 0
        return cls(model.num_classes, model.in_features, size, statistics)
