"""Text features of classes, for models and closed forms."""

from federatedscope_ggeur.settings import import_modules

from .base import (
    TEXT_MODELS,
    CosineHead,
    TextModelSettings,
    TextPart,
    register_text_model,
)
from .classes import ClassTexts
from .ensemble import EnsembleHead
from .keys import TEXT_USE_KEYS
from .prompts import PromptHead

import_modules(__name__, __path__)
