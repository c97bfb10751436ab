"""Text features of classes, for models and closed forms."""

from federatedscope_ggeur.models.text.base import (
    TEXT_MODELS,
    CosineHead,
    TextModelSettings,
    TextPart,
    register_text_model,
)
from federatedscope_ggeur.models.text.classes import ClassTexts
from federatedscope_ggeur.models.text.keys import TEXT_USE_KEYS
from federatedscope_ggeur.models.text.prompts import PromptHead
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
