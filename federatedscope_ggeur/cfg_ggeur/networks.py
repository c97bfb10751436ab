"""A network on pixels, of `ggeur.network.*`."""

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
    """The kind of space that is trained in; a network normalises pixels itself and a
    text model takes embeddings as CLIP gives them, so for these ``ggeur.space`` is left
    at its default."""
    return "raw" if ggeur.network.name or ggeur.text.model else ggeur.space
