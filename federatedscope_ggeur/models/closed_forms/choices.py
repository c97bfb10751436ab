"""Settings that closed forms share, and what leave-one-out chooses among."""

from __future__ import annotations

from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    fraction,
    one_of,
    positive_or_not_set,
)

#: How far below those of the seen classes the offset of an unseen class lies.
BELOW = 10.0

#: Shares of the spherical covariance, the largest first, for it wins a tie. The grid
#: reaches far down: dimensions in different units need shares that small.
SHRINKAGES = (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5, 1e-6)
#: The share where nothing can be left out, or where that says nothing. It was found on
#: data that are not in this repository.
UNTUNED_SHRINKAGE = 0.3

#: Multiples of a mean eigenvalue, likewise.
STRENGTHS = (
    10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001,
    3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-7,
)  # fmt: skip
#: Smaller ones are not tried on compressed statistics, whose rounding they would show.
LEAST_COMPRESSED = 0.01

#: A common covariance of which more is spherical hides no class means: weights are
#: these, all but turned.
MOST_SPHERICAL = 0.6


def priors_key(meaning: str) -> Key:
    """The setting `priors`: ``"counts"``, or ``"none"``, the same for all."""
    return Key("priors", "counts", meaning, one_of("counts", "none"))


def shrinkage_key(meaning: str) -> Key:
    """The setting `shrinkage`, a share; not set, leave-one-out chooses it."""
    return Key(
        "shrinkage",
        NOT_SET,
        f"{meaning}share of the spherical covariance in the common one, 0 to 1; -1: "
        "chosen by leave-one-out.",
        fraction(not_set_allowed=True),
    )


def standardize_key(meaning: str) -> Key:
    """The setting `standardize`, off by default."""
    return Key(
        "standardize",
        False,
        f"{meaning}work on rows whose dimensions are divided by their standard "
        "deviations; `auto` tries both.",
        one_of(True, False),
    )


def strength_key(meaning: str) -> Key:
    """The setting `strength`, relative; not set, leave-one-out chooses it."""
    return Key(
        "strength",
        NOT_SET,
        f"{meaning}multiple of their mean; -1: chosen by leave-one-out.",
        positive_or_not_set,
    )
