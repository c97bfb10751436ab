"""What all clients and the server of a federation have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

from federatedscope_ggeur.federation.wire.schema import (
    EACH_CLASS,
    MessageSchema,
    StatisticsForm,
)
from federatedscope_ggeur.geometry import SpaceSettings
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import Model, ModelSettings, build_model

_RAW = SpaceSettings("raw")


@dataclass(frozen=True)
class Task:
    """What a federation trains, and by what method; both roles are told.

    Attributes
    ----------
    num_classes, dim : int
        C, and D of the embeddings.
    model : ModelSettings
    method : Method
    seed : int
        Keys every draw.
    statistics : StatisticsForm
        How class statistics travel.
    pooled_geometry : bool
        GGEUR draws along one shape for all classes in place of one for each.
    space : SpaceSettings
        The space that is trained in.
    scored : ModelSettings, optional
        The kind of model that is scored and left, if it is not the trained one.
    counted_prototypes : bool
        The prototype of a class is its mean over all clients, with its count. Each
        client takes its own rows out of it.
    """

    num_classes: int
    dim: int
    model: ModelSettings
    method: Method
    seed: int
    statistics: StatisticsForm = EACH_CLASS
    pooled_geometry: bool = False
    space: SpaceSettings = _RAW
    scored: ModelSettings | None = None
    counted_prototypes: bool = False

    def build_model(self) -> Model:
        """The model that is trained, with the parameters that its class sets."""
        return build_model(self.dim, self.num_classes, self.model)

    def build_scored(self, model: Model) -> Model:
        """The model that is scored: `model`, the trained one, or a new one."""
        if self.scored is None:
            return model
        return build_model(self.dim, self.num_classes, self.scored)

    def schema(self, model: Model) -> MessageSchema:
        """What received messages are checked against."""
        return MessageSchema.of(
            model,
            self.method,
            self.statistics,
            pooled_geometry=self.pooled_geometry,
            counted_prototypes=self.counted_prototypes,
        )

    def calibration_schema(self, model: Model) -> MessageSchema:
        """The schema of class statistics of the last layer's input."""
        schema = replace(self.schema(model), statistics=self.statistics.by_class)
        return replace(schema, dim=model.classifier.in_features)
