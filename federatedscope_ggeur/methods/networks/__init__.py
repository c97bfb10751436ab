"""Methods that need feature maps or pixels of a network, one file each."""

from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
