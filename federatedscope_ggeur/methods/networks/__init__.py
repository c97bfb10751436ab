"""Methods that need a network's feature maps or pixels, one file each."""

from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
