"""The embedding cache, which finds features by everything that they depend on."""
