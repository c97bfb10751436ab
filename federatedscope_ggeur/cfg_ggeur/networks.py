"""The network on pixels that `ggeur.network.*` describes."""

from __future__ import annotations

from federatedscope_ggeur.models import NetworkSettings


def network_settings(ggeur) -> NetworkSettings | None:
    """The network of `cfg.ggeur`; None for a head on embeddings."""
    chosen = ggeur.network
    if not chosen.name:
        return None
    alike = ("name", "stem", "norm", "augment", "weights")
    return NetworkSettings(
        **{name: chosen[name] for name in alike},
        mean=tuple(map(float, chosen.mean)),
        std=tuple(map(float, chosen.std)),
    )


def trained_space(ggeur) -> str:
    """The kind of space of training.

    It is raw for a network, which normalises pixels itself, and for a text model, which
    takes CLIP's embeddings; ``ggeur.space`` stays at its default then."""
    return "raw" if ggeur.network.name or ggeur.text.model else ggeur.space
