"""The zero-shot head of a text encoder."""

from __future__ import annotations

import torch

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.models.closed_forms import (
    ClosedForm,
    LeftOut,
    Solved,
    Statistics,
    register_closed_form,
)
from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows
from federatedscope_ggeur.models.heads import LinearHead

from .classes import ClassTexts


@register_closed_form("zeroshot")
class ZeroShot(ClosedForm):
    """The zero-shot head: ``s <x, w_c>`` with the unit text features w_c of the
    classes.

    Clients send nothing for this head. If embeddings do not have length 1, the head
    chooses the same classes, but its temperature differs.

    References
    ----------
    Radford et al., "Learning transferable visual models from natural language
    supervision", 2021.
    """

    meaning = "zero-shot: the text features of the classes' names; nothing is sent up"
    source = "Radford 2021 (CLIP)"
    NEEDS = "means"
    asks = False
    needs_known = True

    @property
    def known_text(self) -> ClassTexts:
        """The text features of the classes.

        Raises
        ------
        ConfigError
            There are no text features.
        """
        if not isinstance(self.known, ClassTexts):
            raise ConfigError(
                f"{setting('closed_form')}: {self.name} needs text features of the "
                "classes; set them, or take another closed form"
            )
        return self.known

    def solve(
        self,
        statistics: Statistics,
        components: Components | None = None,
        seed: int = 0,
    ) -> Solved:
        text = self.known_text
        classes, dim = text.features.shape
        model = LinearHead(dim, classes)
        with torch.no_grad():
            model.classifier.weight.copy_(text.weight)
            model.classifier.bias.zero_()
        report = {"rows": 0, "classes": classes, "left_out": 0}
        return Solved(
            model.eval().requires_grad_(False), {**report, "logit_scale": text.scale}
        )

    def left_out(self, components: Components) -> LeftOut:
        text = self.known_text

        def score(rows: ScoredRows) -> list:
            return [text.logits(rows.features)]

        return score
