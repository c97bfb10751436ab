"""Settings of the network on pixels that the keys `ggeur.network.*` describe."""

from __future__ import annotations

from federatedscope_ggeur.models import NetworkSettings


def network_settings(ggeur) -> NetworkSettings | None:
    """The settings of the network in `cfg.ggeur`; None for a head on embeddings."""
    chosen = ggeur.network
    if not chosen.name:
        return None
    alike = ("name", "stem", "norm", "augment", "weights", "precision")
    return NetworkSettings(
        **{name: chosen[name] for name in alike},
        mean=tuple(map(float, chosen.mean)),
        std=tuple(map(float, chosen.std)),
    )


def trained_space(ggeur) -> str:
    """The kind of space in which a model is trained; usually ``ggeur.space``.

    It is "raw" for a network, which normalises pixels itself, and for a text model,
    which takes CLIP's embeddings.
    """
    return "raw" if ggeur.network.name or ggeur.text.model else ggeur.space
