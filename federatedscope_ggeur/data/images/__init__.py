"""Readers of image data sets. All modules of this folder are imported."""

from federatedscope_ggeur.settings import import_modules

from .files import load_image
from .layout import (
    IMAGE_READERS,
    ImageDataSet,
    ImageDomain,
    Images,
    register_image_reader,
)

import_modules(__name__, __path__)
