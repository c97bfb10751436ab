"""The version of this package. It is stated only here."""

__version__ = "0.1.0"
