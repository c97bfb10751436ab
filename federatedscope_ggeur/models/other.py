"""Models that a run trains in place of a head on embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from federatedscope_ggeur.extras import parts_of
from federatedscope_ggeur.settings import Objections, Registry

from .base import Model


class OtherModel:
    """The settings of a model in place of a head. A subclass is a frozen dataclass.

    Attributes
    ----------
    takes_images : bool
        As in the models that it builds, see `Model.takes_images`.
    told : str
        What a run's description says of the model, in place of its space.
    """

    takes_images: ClassVar[bool] = False
    told: ClassVar[str] = ""

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield the settings of a run that conflict with this kind of model.

        It is asked whether or not the run chooses it.
        """
        return ()

    @classmethod
    def of_run(cls, run: Any) -> OtherModel:
        """The settings of the model of a run. ``run[field]`` is a setting's value."""
        raise NotImplementedError

    @classmethod
    def agreed(cls, run: Any) -> Mapping[str, object]:
        """Further settings that all sides share, by name, if the run chooses it."""
        return {}

    def build(self, in_features: int, num_classes: int, dropout: float = 0.0) -> Model:
        """Build the model.

        Raises
        ------
        ConfigError
            It cannot be made.
        """
        raise NotImplementedError

    @property
    def leaves_another(self) -> bool:
        """Whether the saved model is of another kind than the trained one."""
        return False

    def as_left(self) -> OtherModel:
        """The settings of the model that is scored and saved."""
        return self


#: By the setting that chooses one of the kind, such as ``"my_model.name"``. Its value
#: is a text; "" chooses none.
OTHER_MODELS: Registry[type[OtherModel]] = Registry("model", "a model's setting")
OTHER_MODELS.expect(parts_of("models"))


def register_other_model(setting: str) -> Callable[[type], type]:
    """Decorator: register a subclass of `OtherModel` by the setting that chooses it."""
    return OTHER_MODELS.registered(setting)


def chosen_other(run: Any) -> str:
    """The setting by which a run chooses a model in place of a head; "" if none."""
    return next((name for name in OTHER_MODELS if run[name]), "")
