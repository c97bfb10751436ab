"""The definition of a text model, whose last layer is text features of the classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.augmentation.keys import AugmentationKeys
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.base import OtherModel, register_other_model
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    check_class,
    check_returned,
)

from .classes import ClassTexts, EnsembleHead, placeholder
from .keys import ENSEMBLE, OWN, TEXT_MODELS
from .objections import objections, others

Part = TypeVar("Part", bound="type[TextPart]")


class TextPart:
    """Base class of text models. A subclass is one registered kind.

    Attributes
    ----------
    name, chosen_by : str
    meaning, source : str
    SETTINGS : tuple of Key
        The settings ``ggeur.<name>.*``.
    learns_prompts : bool
        Whether training needs the text tower itself.
    own_classes : bool
        Whether a client trains only on its own classes.
    """

    name: ClassVar[str] = ""
    chosen_by: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    source: ClassVar[str] = ""
    SETTINGS: ClassVar[tuple[Key, ...]] = ()
    learns_prompts: ClassVar[bool] = False
    own_classes: ClassVar[bool] = False

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield the settings of a run that conflict with this text model."""
        own = cls.chosen_by
        heads = {"closed_form": ["none"], "calibrate": ["none"]}
        mixed = {"text.regulariser": [0], "text.interpolate": [1]}
        why = "which has text as its last layer"
        yield Objection(own, {**heads, **mixed}, why)
        other = {**{name: [""] for name in others()}, "mlp_hidden_dim": [0]}
        yield Objection(own, other, "which is the model itself")
        if cls.own_classes and run.of(AugmentationKeys).augmentation == "ggeur":
            why = "in which a client trains on the classes that it holds"
            yield Objection(own, {"steps": [[]]}, why)

    @classmethod
    def build(cls, texts: ClassTexts, **options) -> Model:
        """Build the model that is trained."""
        raise NotImplementedError

    @classmethod
    def build_left(cls, texts: ClassTexts, **options) -> Model:
        """Build the model that is scored and saved.

        For learnt prompts, this is a head of their text features.
        """
        if cls.learns_prompts:
            return CosineHead(texts.features.shape[1], len(texts.features))
        return cls.build(texts, **options)


def register_text_model(name: str) -> Callable[[Part], Part]:
    """Decorator: register a subclass of `TextPart` as ``ggeur.text.model: <name>``.

    Its `build` makes the `Model` that is trained. Its `SETTINGS` become the keys
    ``ggeur.<name>.<setting>``; `build` gets them by name.

    Raises
    ------
    TypeError
        The class is no `TextPart`, or has no `build`.
    ValueError
        The name is taken.

    Examples
    --------
    >>> @register_text_model("moved")
    ... class Moved(TextPart):
    ...     @classmethod
    ...     def build(cls, texts):  # texts.features: one vector [D] for each class
    ...         return MyModel(texts.features)
    """

    TEXT_MODELS.require_name(name)

    def register(part: Part) -> Part:
        check_class(f"the text model '{name}'", part, TextPart, ("build",))
        return TEXT_MODELS.add(name, part)  # type: ignore[return-value]

    return register


@register_other_model(OWN)
@dataclass(frozen=True)
class TextModelSettings(OtherModel):
    """The settings of a text model: its name, the text features, and its options.

    With `left`, they describe the model that is scored and saved. Without `texts`, the
    model's numbers are loaded later.
    """

    name: str
    texts: ClassTexts | None = None
    options: tuple[tuple[str, object], ...] = ()
    left: bool = False

    @property
    def leaves_another(self) -> bool:
        """Whether the saved model is of another kind than the trained one."""
        return TEXT_MODELS.find(self.name).learns_prompts

    @classmethod
    def objections(cls, run: Any) -> Objections:
        return objections(run)

    @classmethod
    def of_run(cls, run: Any) -> TextModelSettings:
        own = {name.partition(".")[2]: value for name, value in cls.agreed(run).items()}
        return cls(run[OWN], options=tuple(sorted(own.items())))

    @classmethod
    def agreed(cls, run: Any) -> Mapping[str, object]:
        part = TEXT_MODELS.find(run[OWN])
        names = [f"{part.name}.{key.name}" for key in part.SETTINGS]
        return {name: run[name] for name in names}

    def as_left(self) -> TextModelSettings:
        return replace(self, left=True)

    def build(self, in_features: int, num_classes: int, dropout: float = 0.0) -> Model:
        part = TEXT_MODELS.find(self.name)
        texts = self.texts or placeholder(num_classes, in_features)
        make = part.build_left if self.left else part.build
        model = make(texts, **dict(self.options))
        whose = f"{make.__name__} of the text model '{self.name}'"
        check_returned(whose, make, model, Model)
        return model


@register_other_model(ENSEMBLE)
@dataclass(frozen=True)
class EnsembleSettings(OtherModel):
    """The settings of the ensemble of a closed form and the zero-shot head."""

    @classmethod
    def of_run(cls, run: Any) -> EnsembleSettings:
        return cls()

    def build(self, in_features: int, num_classes: int, dropout: float = 0.0) -> Model:
        return EnsembleHead(in_features, num_classes)


class TextHead(Model):
    """A model whose last layer is text, so that there is none to train."""

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # text stands there
        raise ConfigError(
            f"a {type(self).__name__} has no last layer to train, because text "
            "features take its place; take a linear or MLP head"
        )

    def last_input(self, features: Tensor) -> Tensor:
        return self.represent(features)


class CosineHead(TextHead):
    """The head that learnt prompts give: logits ``V x/|x|``.

    Its representation is the logits.

    Attributes
    ----------
    weight : Parameter of shape (C, D)
        V, the scaled text features.
    """

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.weight = nn.Parameter(torch.zeros(num_classes, in_features))

    def last_input(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1)

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Set all weights to zero. Nothing is drawn."""
        with torch.no_grad():
            self.weight.zero_()
        return self

    def represent(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1) @ self.weight.T
