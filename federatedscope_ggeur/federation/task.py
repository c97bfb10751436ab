"""The settings that all clients and the server of a federation share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from federatedscope_ggeur.geometry import SpaceSettings
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import Model, ModelSettings, build_model

from .wire.schema import EACH_CLASS, MessageSchema, StatisticsForm

_RAW = SpaceSettings("raw")


@dataclass(frozen=True)
class Task:
    """The model that a federation trains, and the method that trains it.

    Attributes
    ----------
    num_classes, dim : int
        The number of classes C and the dimension D of embeddings.
    model : ModelSettings
    method : Method
    seed : int
        The seed of the run. It is part of the seed of every draw.
    statistics : StatisticsForm
        How class statistics travel.
    pooled_geometry : bool
        Whether GGEUR draws along one shape for all classes, not one for each class.
    space : SpaceSettings
        The space of training.
    scored : ModelSettings, optional
        The kind of model that is scored and left, if it differs from the trained kind.
    counted_prototypes : bool
        Whether the prototype of a class is its mean over all clients, sent with its
        count. Each client then subtracts its own rows.
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
        """Make the model to train, with its initial parameters."""
        return build_model(self.dim, self.num_classes, self.model)

    def build_scored(self, model: Model) -> Model:
        """The model to score: the trained `model`, or one of the kind `scored`."""
        if self.scored is None:
            return model
        return build_model(self.dim, self.num_classes, self.scored)

    def schema(self, model: Model) -> MessageSchema:
        """The schema by which received messages are checked."""
        return MessageSchema.of(
            model,
            self.method,
            self.statistics,
            pooled_geometry=self.pooled_geometry,
            counted_prototypes=self.counted_prototypes,
        )

    def calibration_schema(self, model: Model) -> MessageSchema:
        """The schema for class statistics of the last layer's input."""
        schema = replace(self.schema(model), statistics=self.statistics.by_class)
        return replace(schema, dim=model.classifier.in_features)
