"""Image data sets: their readers, by the name that ``data.type`` gives them."""

from federatedscope_ggeur.data.images.base import (
    ImageDataSet,
    ImageDomain,
    ImageReader,
    Images,
    image_reader,
    image_reader_names,
    register_image_reader,
)
from federatedscope_ggeur.data.images.cifar import read_cifar10, read_cifar100
from federatedscope_ggeur.data.images.digit_images import read_digits
from federatedscope_ggeur.data.images.files import load_image
from federatedscope_ggeur.data.images.folder import read_image_folder
from federatedscope_ggeur.data.images.office_caltech import read_office_caltech
from federatedscope_ggeur.data.images.office_home import (
    read_office_home,
    read_office_home_lds,
)
from federatedscope_ggeur.data.images.pacs import read_pacs
from federatedscope_ggeur.data.images.tiny_imagenet import read_tiny_imagenet

__all__ = [
    "ImageDataSet",
    "ImageDomain",
    "ImageReader",
    "Images",
    "image_reader",
    "image_reader_names",
    "load_image",
    "read_cifar10",
    "read_cifar100",
    "read_digits",
    "read_image_folder",
    "read_office_caltech",
    "read_office_home",
    "read_office_home_lds",
    "read_pacs",
    "read_tiny_imagenet",
    "register_image_reader",
]
