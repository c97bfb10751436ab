"""From `ggeur.text.*` to frozen settings of the rooms below."""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur.method_settings import options_of
from federatedscope_ggeur.federation.text import TextMix, TextPull
from federatedscope_ggeur.models import TEXT_MODELS, TextModelSettings
from federatedscope_ggeur.models.text import ClassTexts


def text_pull(ggeur, text: ClassTexts | None) -> TextPull | None:
    """The pull towards text features, of ``ggeur.text.regulariser``."""
    strength = ggeur.text.regulariser
    return TextPull(text.weight, strength) if text is not None and strength else None


def text_mix(ggeur, text: ClassTexts | None) -> TextMix | None:
    """The mix of a head with text features, of ``ggeur.text.interpolate``."""
    share = ggeur.text.interpolate
    return TextMix(text.weight, share) if text is not None and share != 1 else None


def text_model(ggeur, text: ClassTexts | None) -> TextModelSettings | None:
    """The text model of ``ggeur.text.model``; None for a head."""
    part = TEXT_MODELS.get(ggeur.text.model)
    if part is None:
        return None
    own = tuple(sorted(options_of(part, ggeur).items()))
    return TextModelSettings(part.name, text, own)
