"""GGEUR, federated classification on frozen image embeddings, for FederatedScope."""

__version__ = "0.1.0"
