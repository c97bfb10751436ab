"""Text features of classes, made by the text side of the encoder.

This package imports only settings and plain containers. Code that needs `load`, `tower`
or `prompts` imports them itself.
"""

from .features import TextFeatures
from .keys import TEXT_KEYS
from .templates import expand, fill
