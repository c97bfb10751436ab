"""Image data sets and their readers; every module of this folder is imported."""

from importlib import import_module
from pkgutil import iter_modules

from federatedscope_ggeur.data.images.base import (
    IMAGE_READERS,
    ImageDataSet,
    ImageDomain,
    ImageReader,
    Images,
    register_image_reader,
)
from federatedscope_ggeur.data.images.files import load_image

for _name in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_name}")

__all__ = [
    "IMAGE_READERS",
    "ImageDataSet",
    "ImageDomain",
    "ImageReader",
    "Images",
    "load_image",
    "register_image_reader",
]
