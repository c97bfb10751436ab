"""The nearest-class-mean head: a row gets the class with the nearest mean."""

from __future__ import annotations

from ..base import Model
from .base import ClosedForm, Seen, linear_head, register_closed_form
from .components import Components
from .lda import discriminant
from .left_out import DiscriminantLeftOut, LeftOut


@register_closed_form("ncm")
class NearestMean(ClosedForm):
    """The nearest class mean: LDA with ``S = I`` and equal priors."""

    meaning = "nearest class mean"
    source = "FedNCM 2023"
    NEEDS = "means"
    from_sums = from_noise = takes_weights = True

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        scores = discriminant(seen, seen.offsets, seen.log_priors("none"))
        return linear_head(*scores, seen), {}

    def left_out(self, components: Components) -> LeftOut:
        return DiscriminantLeftOut(components.merged("class"), None, "none")
