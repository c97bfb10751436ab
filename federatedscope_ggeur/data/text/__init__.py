"""Text features of classes, by the text side of the encoder.

Here are the settings and plain containers. Code that needs `load`, `tower` or `prompts`
imports them.
"""

from federatedscope_ggeur.data.text.features import TextFeatures
from federatedscope_ggeur.data.text.keys import TEXT_KEYS
from federatedscope_ggeur.data.text.templates import expand, fill
