"""The settings of training sets, for server and clients."""

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
        One prototype for each class and other domain, for each class and other client,
        or for each class over all other clients.
    weight : {"augmented", "original", "statistics"}
        The rows that n_k counts: those of the training set, the client's own, or those
        in its statistics.
    train_withheld : bool
        Whether rows of withheld classes are trained on.
    """

    augmentation: AugmentationSettings
    prototypes: str = "domain"
    weight: str = "augmented"
    train_withheld: bool = True
