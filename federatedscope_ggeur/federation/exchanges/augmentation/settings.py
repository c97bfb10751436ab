"""What clients and server are told of the sets that clients train on."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import AugmentationSettings


@dataclass(frozen=True)
class SetSettings:
    """How a client's training set is made, and what the client counts for.

    Attributes
    ----------
    augmentation : AugmentationSettings
    prototypes : {"domain", "client", "others"}
        One prototype for a class and other domain, or for a class and other client, or
        one over all other clients.
    weight : {"augmented", "original", "statistics"}
        The rows that n_k counts: of the set trained on, the client's own, or those
        that statistics are sent of.
    train_withheld : bool
        Whether rows of withheld classes are trained on.
    """

    augmentation: AugmentationSettings
    prototypes: str = "domain"
    weight: str = "augmented"
    train_withheld: bool = True
