"""Data of a run with other rows in place of theirs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from federatedscope_ggeur.data import Embeddings, FederatedData


def changed(
    data: FederatedData,
    change: Callable[[Embeddings], Embeddings],
    splits: Sequence[str] = ("train", "val", "test"),
) -> FederatedData:
    """`data` with what `change` makes of the rows of some of its splits."""
    clients = tuple(
        replace(held, **{split: change(getattr(held, split)) for split in splits})
        for held in data.clients
    )
    pooled = data.pooled and {
        split: {
            d: change(rows) if split in splits else rows for d, rows in held.items()
        }
        for split, held in data.pooled.items()
    }
    return replace(data, clients=clients, pooled=pooled)
