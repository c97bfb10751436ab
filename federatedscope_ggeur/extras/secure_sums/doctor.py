"""What ``ggeur doctor`` says of secure sums."""

from __future__ import annotations

from importlib.metadata import version


def report() -> list[str]:
    """A line that says whether the package that secure sums need is installed."""
    try:
        import cryptography  # noqa: F401

        return [f"secure sums: cryptography {version('cryptography')}"]
    except Exception:  # a broken install may raise anything
        return [
            "secure sums: need the package cryptography; pip install "
            "'federatedscope-ggeur[privacy]'"
        ]
