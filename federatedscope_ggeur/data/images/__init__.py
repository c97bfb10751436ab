"""Readers of image data sets. All modules of this folder are imported."""

from federatedscope_ggeur.data.images.base import (
    IMAGE_READERS,
    ImageDataSet,
    ImageDomain,
    Images,
    register_image_reader,
)
from federatedscope_ggeur.data.images.files import load_image
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
