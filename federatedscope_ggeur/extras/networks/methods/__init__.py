"""Methods that need feature maps, pixels or norms of a network, one file each."""
