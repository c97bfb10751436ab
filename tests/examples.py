"""On how many examples a property is tried: few by default, more in CI."""

from hypothesis import settings


def examples(number: int, **more) -> settings:
    """So many where others are tried on a hundred."""
    most = settings.default.max_examples
    return settings(max_examples=max(number * most // 100, 2), **more)
