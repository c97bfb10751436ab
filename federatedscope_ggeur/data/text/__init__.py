"""Text features of classes, made by the text side of the encoder.

This package imports only settings and plain containers. Code that needs `load`, `tower`
or `prompts` imports them itself.
"""

from federatedscope_ggeur.data.text.features import TextFeatures
from federatedscope_ggeur.data.text.keys import TEXT_KEYS
from federatedscope_ggeur.data.text.templates import expand, fill
