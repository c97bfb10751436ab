"""Image networks: models on rows of pixels, trained end to end."""

from federatedscope_ggeur.models.networks.base import (
    NETWORKS,
    ImageShape,
    Network,
    NetworkSettings,
    find_network,
    image_shape,
    register_network,
)
from federatedscope_ggeur.models.networks.image_network import ImageNetwork
from federatedscope_ggeur.settings import import_modules

# Each network registers itself.
import_modules(__name__, __path__)
