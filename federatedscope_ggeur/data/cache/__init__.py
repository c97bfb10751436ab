"""The embedding cache: features of images, kept by what they depend on."""
