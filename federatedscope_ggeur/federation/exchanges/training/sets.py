"""The rows on which clients train in a round, drawn where they are trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.client import Client, TrainingSet
from federatedscope_ggeur.geometry import AugmentedSet
from federatedscope_ggeur.models import CPU
from federatedscope_ggeur.printable import get_logger

from .fit import near

logger = get_logger(__name__)


def training_sets(clients: Sequence[Client], round_number: int) -> list[TrainingSet]:
    """The sets of clients that share their memory budget, for one round.

    Sets that are the same in each round are kept, as far as the budget goes. The others
    lie in memory that the next call uses again.

    Raises
    ------
    GGEURError
        A client has no set yet, or the sets do not fit the memory.
    """
    sets = [_held(client) for client in clients]
    drawn = [k for k, found in enumerate(sets) if found is None]
    kept: list[int] = []
    others: list[int] = []
    for k in drawn:
        (kept if _reserves(clients[k]) else others).append(k)
    of_kept, of_others = ([clients[k] for k in places] for places in (kept, others))
    for k, found in zip(kept, _drawn(of_kept, round_number, keep=True)):
        clients[k].kept_set = sets[k] = found
    for k, found in zip(others, _drawn(of_others, round_number, keep=False)):
        sets[k] = found
    return [found for found in sets if found is not None]


def in_parts(clients: Sequence[Client]) -> Iterator[list[Client]]:
    """The clients in parts whose sets fit the memory budget together."""
    part: list[Client] = []
    size = 0
    for client in clients:
        recipe = client.recipe
        more = 0 if recipe is None or _held(client) else recipe.nbytes
        if part and size + more > client.memory.left:
            yield part
            part, size = [], 0
        part.append(client)
        size += more
    if part:
        yield part


def _held(client: Client) -> TrainingSet | None:
    """The client's set, if nothing is to be drawn for it."""
    if client.kept_set is not None:
        return client.kept_set
    recipe, device = client.recipe, client.settings.training.device
    if recipe is None:
        raise GGEURError(
            f"client {client.number} was asked to train before round 0 was over"
        )
    if client.model.takes_images:  # nothing to draw, so no copy either
        client.kept_set = _images(client, device)
    elif device == CPU and (order := recipe.order) is not None:
        client.kept_set = TrainingSet(recipe.features, recipe.own_labels, order)
    return client.kept_set


def _images(client: Client, device: torch.device) -> TrainingSet:
    images = near(client.features, device)
    if images.device.type != device.type:
        logger.warning(
            "client %d: its %.1f GB of images would fill more than half of the free "
            "memory of %s, so they stay in main memory, and every batch is copied; "
            "lower %s, or free the GPU",
            client.number,
            images.numel() * images.element_size() / 1e9,
            device,
            setting("encoder.image_size"),
        )
    return TrainingSet(images, client.labels.to(device))


def _reserves(client: Client) -> bool:
    """Whether the client's set is kept; its bytes are reserved then."""
    recipe = _recipe(client)
    return recipe.same_every_round and client.memory.reserve(recipe.nbytes)


def _drawn(
    clients: Sequence[Client], round_number: int, keep: bool
) -> Iterator[TrainingSet]:
    """Draw the clients' sets, one below the other in one block of memory."""
    if not clients:
        return
    recipes, settings = [_recipe(client) for client in clients], clients[0].settings
    rows, dim = sum(one.rows for one in recipes), clients[0].features.shape[1]
    device = settings.training.device
    try:
        if keep:
            block = torch.empty(rows, dim, dtype=torch.float32, device=device)
        else:
            block = clients[0].memory.scratch(rows, dim, device)
        labels, start = torch.empty(rows, dtype=torch.int64, device=device), 0
        for recipe in recipes:
            place = slice(start, start + recipe.rows)
            yield _into(recipe, round_number, block[place], labels[place])
            start += recipe.rows
    except (MemoryError, RuntimeError) as error:
        names = f"client {clients[0].number}: the augmented set"
        if len(clients) > 1:
            names = f"{len(clients)} clients: the augmented sets"
        gigabytes = sum(one.nbytes for one in recipes) / 1e9
        raise GGEURError(
            f"{names} of {rows} rows ({gigabytes:.1f} GB) cannot be made on the "
            f"{device.type} ({str(error).splitlines()[0]:.120}); lower "
            f"{setting('step1_size')} and {setting('step2_size')}, or the size "
            "settings in their place"
        ) from error


def _into(
    recipe: AugmentedSet, round_number: int, features: Tensor, labels: Tensor
) -> TrainingSet:
    _, drawn = recipe.draw(round_number, out=features)
    return TrainingSet(features, labels.copy_(drawn))


def _recipe(client: Client) -> AugmentedSet:
    assert client.recipe is not None  # `_held` refuses others
    return client.recipe
