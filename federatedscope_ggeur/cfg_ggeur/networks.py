"""A network on pixels, of `ggeur.network.*`, and what cannot go with one."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.cfg_ggeur.method_settings import parts_in_use
from federatedscope_ggeur.data import is_image_type
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import AUGMENTATIONS
from federatedscope_ggeur.models import NetworkSettings
from federatedscope_ggeur.models.networks.keys import NETWORK_KEYS

#: The encoder whose rows are pixels.
PIXELS = "image"


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


def network_problems(cfg) -> Iterator[str]:
    """Contradictions of ``ggeur.network`` with other settings, each ``"<key>:
    <problem>"``.

    Whether rows in files are pixels is only known once they are read, see
    `federation.rows.check_rows`.
    """
    if not cfg.ggeur.use:
        return
    yield from _norm_problems(cfg)
    ggeur, name = cfg.ggeur, cfg.ggeur.network.name
    images, encoder = _is_of_images(cfg), ggeur.encoder.name
    if not name:
        yield from _without_network(ggeur, images)
        return
    chosen = f"with ggeur.network.name: {name}"
    if images and encoder != PIXELS:
        yield (
            f"ggeur.encoder.name: must be {PIXELS} {chosen}, which is trained on "
            f"pixels; got {encoder}"
        )
    if ggeur.augmentation == "ggeur" and list(ggeur.steps):
        others = " or ".join(("none", *AUGMENTATIONS))
        yield (
            f"ggeur.steps: must be [] {chosen}, because GGEUR draws embeddings, not "
            f"pixels; or set ggeur.augmentation to {others}"
        )
    if ggeur.closed_form != "none":
        yield (
            f"ggeur.closed_form: must be none {chosen}, because a closed form is "
            "worked out of embeddings"
        )
    if ggeur.mlp_hidden_dim != 0:
        yield f"ggeur.mlp_hidden_dim: must be 0 {chosen}, which has its own layers"
    if ggeur.space == "whitened":
        yield (
            f"ggeur.space: must not be whitened {chosen}, which normalises pixels by "
            "ggeur.network.mean and ggeur.network.std"
        )


def _norm_problems(cfg) -> Iterator[str]:
    network = cfg.ggeur.network
    for part in parts_in_use(cfg):
        if part.needs_norms and not (network.name and network.norm == "batch"):
            key = "norm" if network.name else "name"
            yield (
                f"ggeur.network.{key}: must be {'batch' if network.name else 'set'} "
                f"with {part.name}, which is about BatchNorm layers"
            )


def _without_network(ggeur, images: bool) -> Iterator[str]:
    for key in NETWORK_KEYS:
        value = ggeur.network[key.name.partition(".")[2]]
        if value != key.default:
            yield (
                f"ggeur.{key.name}: is for a network; name one by ggeur.network.name, "
                "or leave the line out"
            )
    if images and ggeur.encoder.name == PIXELS:
        yield (
            f"ggeur.network.name: must be set with ggeur.encoder.name: {PIXELS}, whose "
            "pixels are for networks; or take an encoder that embeds images"
        )


def _is_of_images(cfg) -> bool:
    """Whether ``data.type`` reads images, which an encoder makes rows of."""
    try:
        return is_image_type(cfg.data.type)
    except ConfigError:
        return False  # which is said elsewhere
