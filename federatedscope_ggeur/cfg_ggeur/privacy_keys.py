"""The min-count threshold, and what closes single gaps beside it: keys, checks."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.settings import Key, one_of, whole

PRIVACY_KEYS = (
    Key(
        "privacy.min_samples",
        5.0,
        "A client says nothing of a class it has fewer samples of. 1 reproduces the "
        "paper and reveals single embeddings.",
        whole(1),
    ),
    Key(
        "privacy.train_withheld",
        True,
        "Train on rows of classes that the client has fewer than privacy.min_samples "
        "of. A single one can be read off the update of a head; False leaves them out.",
        one_of(True, False),
    ),
    Key(
        "privacy.float32_means",
        False,
        "Round means to float32 before they travel: the difference of two says less of "
        "the row by which they differ.",
        one_of(True, False),
    ),
)


def privacy_problems(ggeur, asks: bool) -> Iterator[str]:
    """What cannot be of these keys, each ``"<key>: <problem>"``; `asks` says whether
    clients are asked for statistics of their own."""
    if ggeur.weight == "statistics" and not asks:
        yield (
            "ggeur.weight: cannot be statistics where no client sends statistics of "
            "its own, since all would count for nothing"
        )
    if not ggeur.privacy.train_withheld and ggeur.network.name:
        yield (
            "ggeur.privacy.train_withheld: must be True with ggeur.network.name, which "
            "trains on all rows"
        )
