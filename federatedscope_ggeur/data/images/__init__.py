"""Readers of image data sets. All modules of this folder are imported."""

from federatedscope_ggeur.settings import import_modules

from .base import (
    IMAGE_READERS,
    ImageDataSet,
    ImageDomain,
    Images,
    register_image_reader,
)
from .files import load_image

import_modules(__name__, __path__)
