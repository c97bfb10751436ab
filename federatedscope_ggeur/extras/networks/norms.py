"""Replace the BatchNorm layers of a network."""

from __future__ import annotations

from torch import nn

from federatedscope_ggeur.errors import ConfigError, setting

_GROUPS = 32
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def put_norms(module: nn.Module, kind: str, name: str) -> None:
    """Replace all BatchNorm layers of a network by layers of another `kind`.

    `kind` is "batch", "layer", "group" or "none". "layer" normalises all numbers of a
    row together. "group" normalises groups of channels. There are 32 groups, or the
    largest smaller number that divides the channels.

    Raises
    ------
    ConfigError
        The network `name` has no BatchNorm layers, or has some that do more than
        normalise.
    """
    found = [
        (parent, child, layer)
        for parent in module.modules()
        for child, layer in parent.named_children()
        if isinstance(layer, _BATCH_NORMS)
    ]
    if kind == "batch" or (kind == "none" and not found):
        return
    if not found or any(type(layer) not in _BATCH_NORMS for *_, layer in found):
        raise ConfigError(
            f"{setting('network.norm')}: {name} has no plain BatchNorm layers to "
            "replace; leave the key at batch, which keeps the network's own layers"
        )
    for parent, child, layer in found:
        setattr(parent, child, _norm(kind, layer.num_features))


def _norm(kind: str, channels: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    groups = 1
    if kind == "group":
        groups = max(g for g in range(1, _GROUPS + 1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)
