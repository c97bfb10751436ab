"""The version of this package, stated once."""

__version__ = "0.1.0"
