from .exchange import AugmentationExchange
