"""Load the weights that a network begins with, from a file or as published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.weights import local_file, read_weights

from .base import Network

if TYPE_CHECKING:
    from .image_network import NetworkSettings


def load_weights(network: Network, settings: NetworkSettings) -> None:
    """Load the weights that ``settings.weights`` names into the network.

    If the weights have a last layer for other classes, the network's own last layer
    stays. All other layers must fit.

    Raises
    ------
    ConfigError
        The weights cannot be obtained or read, or belong to another network.
    """
    chosen, name = settings.weights, settings.name
    key = setting("network.weights")
    path = local_file(chosen, key)
    if path is not None:
        state = read_weights(path, key)
    elif network.published is None:
        raise _refusal(
            f"got {chosen!r}, but there are no published weights of {name}; name a "
            "file of weights"
        )
    else:
        state = _published(network, settings)
    _put(network, state, f"'{chosen}'", name)


def _published(network: Network, settings: NetworkSettings) -> Mapping[str, Tensor]:
    assert network.published is not None
    try:
        return network.published(settings)
    except ConfigError:
        raise
    except Exception as error:  # libraries, hub, HTTP and sockets raise many kinds
        first = str(error).strip().splitlines()[:1]
        raise _refusal(
            f"the weights {settings.weights!r} of {settings.name} are not on this "
            f"machine and could not be fetched: {type(error).__name__}: "
            f"{''.join(first)}. Fetch them on a machine with a network, copy the file "
            "here, and name it"
        ) from error


def _put(network: Network, state: Mapping[str, Tensor], source: str, name: str) -> None:
    module, last = network.module, f"{network.classifier}."
    wanted = module.state_dict()
    fits = {n: t for n, t in wanted.items() if n in state and _same(state[n], t)}
    # The last layer is loaded only if both its weight and its bias fit.
    own = [n for n in wanted if n.startswith(last)]
    if not all(n in fits for n in own):
        fits = {n: t for n, t in fits.items() if n not in own}
    lacking = [n for n in wanted if n not in fits and n not in own]
    if lacking:
        problem = ", ".join(_shapes(n, state, wanted) for n in lacking[:3])
        raise _refusal(
            f"the weights {source} do not fit {name}: {len(lacking)} of its "
            f"{len(wanted)} tensors are missing or have another shape, e.g. {problem}. "
            f"For a ResNet of ImageNet set {setting('network.stem')} imagenet, and use "
            "images of three channels"
        )
    with torch.no_grad():
        for n, tensor in wanted.items():
            if n in fits:
                tensor.copy_(state[n])


def _same(one: object, other: Tensor) -> bool:
    return isinstance(one, Tensor) and one.shape == other.shape


def _shapes(name: str, state: Mapping[str, Tensor], wanted: Mapping) -> str:
    there = list(state[name].shape) if name in state else "missing"
    return f"{name} ({there} instead of {list(wanted[name].shape)})"


def _refusal(problem: str) -> ConfigError:
    return ConfigError(f"{setting('network.weights')}: {problem}")
