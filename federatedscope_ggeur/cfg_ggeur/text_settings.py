"""Turn the keys `ggeur.text.*` into the frozen settings that lower packages take."""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur.method_settings import options_of
from federatedscope_ggeur.federation.text import TextMix, TextPull
from federatedscope_ggeur.models import TEXT_MODELS, TextModelSettings
from federatedscope_ggeur.models.text import ClassTexts


def text_pull(ggeur, text: ClassTexts | None) -> TextPull | None:
    """How strongly training pulls the head towards text features; None for no pull.

    From the key ``ggeur.text.regulariser``.
    """
    strength = ggeur.text.regulariser
    return TextPull(text.weight, strength) if text is not None and strength else None


def text_mix(ggeur, text: ClassTexts | None) -> TextMix | None:
    """How a trained head is mixed with text features; None for no mix.

    From the key ``ggeur.text.interpolate``.
    """
    share = ggeur.text.interpolate
    return TextMix(text.weight, share) if text is not None and share != 1 else None


def text_model(ggeur, text: ClassTexts | None) -> TextModelSettings | None:
    """The settings of the text model that is trained; None if a head is trained.

    They come from the key ``ggeur.text.model`` and from the text model's own keys.
    """
    part = TEXT_MODELS.get(ggeur.text.model)
    if part is None:
        return None
    own = tuple(sorted(options_of(part, ggeur).items()))
    return TextModelSettings(part.name, text, own)
