"""The settings of training sets, which server and clients share."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import AugmentationSettings


@dataclass(frozen=True)
class SetSettings:
    """How a client makes its training set, and its aggregation weight.

    Attributes
    ----------
    augmentation : AugmentationSettings
    prototypes : {"domain", "client", "others"}
        Whether a class has one prototype for each other domain, one for each other
        client, or one over all other clients.
    weight : {"augmented", "original", "statistics"}
        Which rows the weight n_k counts: those of the training set, the client's own
        rows, or the rows in its statistics.
    train_withheld : bool
        Whether the client trains on rows of withheld classes.
    """

    augmentation: AugmentationSettings
    prototypes: str = "domain"
    weight: str = "augmented"
    train_withheld: bool = True
