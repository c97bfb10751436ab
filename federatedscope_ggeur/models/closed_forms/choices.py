"""Settings that several closed forms have, and the values that leave-one-out tries."""

from __future__ import annotations

from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    fraction,
    one_of,
    positive_or_not_set,
)

#: An unseen class scores the mean of the seen ones less this, at every row. So it is
#: never the largest, not even by rounding, and training can still raise it. Measured on
#: embeddings of Caltech-101, this start trains unseen classes best.
BELOW = 1e-3

#: Shares of the spherical covariance. The largest comes first: it wins a tie. The grid
#: reaches far down, because dimensions in different units need small shares.
SHRINKAGES = (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5, 1e-6)
#: The share if leave-one-out is impossible or decides nothing. It was found on data
#: that are not in this repository.
UNTUNED_SHRINKAGE = 0.3

#: Multiples of a mean eigenvalue, also the largest first.
STRENGTHS = (
    10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001,
    3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-7,
)  # fmt: skip
#: Smaller values are not tried on compressed statistics: they would show the rounding.
LEAST_COMPRESSED = 0.01

#: If more than this share of the common covariance is spherical, the weights nearly
#: equal the class means, and so show them.
MOST_SPHERICAL = 0.6


def priors_key(meaning: str) -> Key:
    """The setting `priors`: ``"counts"``, or ``"none"`` for equal priors."""
    return Key("priors", "counts", meaning, one_of("counts", "none"))


def shrinkage_key(meaning: str) -> Key:
    """The setting `shrinkage`, a share. If not set, leave-one-out chooses the share."""
    return Key(
        "shrinkage",
        NOT_SET,
        f"{meaning}weight of the spherical covariance in the common one, from 0 to 1; "
        "-1: leave-one-out chooses it.",
        fraction(not_set_allowed=True),
    )


def standardize_key(meaning: str) -> Key:
    """The setting `standardize`, off by default."""
    return Key(
        "standardize",
        False,
        f"{meaning}divide each dimension by its standard deviation first. `auto` "
        "tries both.",
        one_of(True, False),
    )


def strength_key(meaning: str) -> Key:
    """The key for a setting `strength`, which is a multiple of a mean.

    `meaning` states which quantity is meant. If the setting is -1, leave-one-out
    chooses the strength.
    """
    return Key(
        "strength",
        NOT_SET,
        f"{meaning}multiple of their mean; -1: leave-one-out chooses it.",
        positive_or_not_set,
    )
