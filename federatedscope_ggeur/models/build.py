"""Build the model of a run from its settings."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.errors import ConfigError

from .base import Model, OtherModel
from .closed_forms import CLOSED_FORMS
from .folding import AverageHead
from .heads import LinearHead, MLPHead

#: Rows of so few columns, or of so few classes, need more than a linear head. Rows of
#: many classes and columns do better from the one-shot head. Measured in docs/heads.md.
FEW_COLUMNS, FEW_CLASSES = 160, 20
#: The units of the hidden layer of the head for the former.
HIDDEN_UNITS = 256
#: The largest norm of its gradients, if the settings name none. Without, noisy labels
#: make it diverge at FS's default rate.
LARGEST_GRADIENT = 10.0


@dataclass(frozen=True)
class ModelSettings:
    """The settings that decide which model a run has.

    Attributes
    ----------
    hidden : int
        Units of the hidden layer; 0 for the linear head.
    dropout : float
        Dropout of the hidden layer, or of the other model.
    closed_form : str
        The closed form that makes the model; "none" for a head that is only trained.
    starts : bool
        Whether training goes on from the closed form.
    other : OtherModel or None
        The model in place of a head.
    averaged : bool
        Whether the run may leave the mean of a one-shot head and of a trained one.
    """

    hidden: int = 0
    dropout: float = 0.0
    closed_form: str = "none"
    starts: bool = False
    other: OtherModel | None = None
    averaged: bool = False

    def hidden_units(self, in_features: int, num_classes: int) -> int:
        """Hidden units of the head that is trained; 0: it is linear.

        In a mean with a one-shot head it is an MLP if rows have at most `FEW_COLUMNS`
        columns, or are of at most `FEW_CLASSES` classes.
        """
        few = in_features <= FEW_COLUMNS or num_classes <= FEW_CLASSES
        return HIDDEN_UNITS if self.averaged and few else self.hidden


def build_model(in_features: int, num_classes: int, settings: ModelSettings) -> Model:
    """Build the model for rows of `in_features` dimensions and `num_classes` classes.

    Raises
    ------
    ConfigError
        The closed form is unknown or set together with hidden units, or the other
        model cannot be made.
    """
    if settings.other is not None:
        return settings.other.build(in_features, num_classes, settings.dropout)
    if settings.closed_form != "none":
        form = CLOSED_FORMS.find(settings.closed_form)
        if settings.hidden:
            raise ConfigError(
                f"closed_form: the model of {form.name} has no hidden layer; set 0 "
                f"hidden units, not {settings.hidden}"
            )
        hidden = settings.hidden_units(in_features, num_classes)
        if settings.averaged and not settings.starts:
            return AverageHead(in_features, num_classes, hidden)
        if hidden:
            return MLPHead(in_features, num_classes, hidden, settings.dropout)
        build = form.build_start if settings.starts else form.build_model
        return build(in_features, num_classes)
    if settings.hidden == 0:
        return LinearHead(in_features, num_classes)
    return MLPHead(in_features, num_classes, settings.hidden, settings.dropout)


def two_kinds(one: ModelSettings, other: ModelSettings) -> bool:
    """Whether the trained model and the scored model are of different kinds."""
    if one.other is not None:
        return one.other.leaves_another
    kinds = [type(build_model(1, 2, settings)) for settings in (one, other)]
    return kinds[0] is not kinds[1]
