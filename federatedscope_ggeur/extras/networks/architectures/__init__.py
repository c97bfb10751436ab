"""The networks. A file registers its own."""
