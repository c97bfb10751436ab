"""Text features of classes, by the text side of the encoder; imported when asked for.

What stands here are the settings and plain containers; `load`, `tower` and `prompts`
are imported by who needs them.
"""

from federatedscope_ggeur.data.text.features import TextFeatures
from federatedscope_ggeur.data.text.keys import TEXT_KEYS
from federatedscope_ggeur.data.text.templates import expand, fill
