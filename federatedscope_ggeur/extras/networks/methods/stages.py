"""Rules and draws for methods that act on a network's stages.

Settings number stages from 1. Calls of `LocalHooks.stage` number them from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from federatedscope_ggeur.models import Model


def stage_problem(model: Model, wanted: Sequence[float] = (), field: str = "") -> str:
    """The reason why a method that acts on stages cannot use `model`; "" if it can.

    A head on embeddings has no stages. A network may have fewer stages than the setting
    `field` asks for.
    """
    count = len(model.stage_widths)
    if not count:
        return (
            "acts on the stages of a network, but this model has none; set a network "
            "with stages"
        )
    if wanted and max(wanted) > count:
        return f"{field} {list(wanted)} names more than the network's {count} stages"
    return ""


class BatchDraws:
    """Makes random draws for each stage of a batch, and repeats them for the same
    batch.

    FedSAM runs the model twice on a batch, and both gradients must be of the same loss.
    `new_batch` is a `LocalHooks.transform` that begins a new batch. If it is never
    called, every run of a stage draws anew.

    Parameters
    ----------
    draw : callable (stage, maps) -> object
        Makes the draws for a stage with maps of shape [B, C, H, W].
    """

    def __init__(self, draw: Callable[[int, Tensor], object]):
        self._draw = draw
        self._drawn: dict[int, object] | None = None

    def new_batch(self, features: Tensor, labels: Tensor) -> Tensor:
        self._drawn = {}
        return features

    def of(self, stage: int, maps: Tensor) -> tuple:
        """The draws for a stage, and whether this call has made them."""
        if self._drawn is not None and stage in self._drawn:
            return self._drawn[stage], False
        drawn = self._draw(stage, maps)
        if self._drawn is not None:
            self._drawn[stage] = drawn
        return drawn, True
