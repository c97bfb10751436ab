"""Image networks: models on rows of pixels, trained end to end."""

from federatedscope_ggeur.settings import import_modules

from .base import (
    NETWORKS,
    ImageShape,
    Network,
    NetworkSettings,
    find_network,
    image_shape,
    register_network,
)
from .image_network import ImageNetwork

# Each network registers itself.
import_modules(__name__, __path__)
