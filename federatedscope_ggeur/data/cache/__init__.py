"""The embedding cache. It finds features by all that they depend on."""
