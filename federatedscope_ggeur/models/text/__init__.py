"""What text says of classes, as models and closed forms take it."""

from federatedscope_ggeur.models.text.classes import ClassTexts
from federatedscope_ggeur.models.text.keys import TEXT_USE_KEYS
