"""A2, A3, A8, A10: test whether a known row is a training row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation.exchanges.augmentation.prototypes import (
    of_the_others,
)
from federatedscope_ggeur.geometry import Statistics

from .base import Clock, Finding, Transcript, Truth, cosine, nothing
from .scores import membership

_LEVEL = "membership"
Scores = list[tuple[np.ndarray, np.ndarray]]


def a2(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A2, by the server: test whether a known row is in one client's statistics.

    If row x is a member, ``x - mu`` lies in the span of the scatter. Without a scatter,
    the attack uses the distance of x from the mean.
    """
    if not seen.uploads:
        yield nothing("A2", "server", _LEVEL, "no client sends its own statistics")
        return
    scores: Scores = []
    for k, upload in seen.uploads.items():
        pooled = None if upload.content == "class" else _inverse_of(upload)
        for c in upload.classes:
            if clock.is_over:
                break
            inside, outside = truth.rows(k, c), truth.of_class(c)[1]
            if not len(outside):
                continue
            inverse = pooled
            if upload.content == "class":
                inverse = _inverse(upload.factor(c).double())
            scores.append(_scored(inverse, upload.means[c], inside, outside))
    yield _finding("A2", "server", scores)


def a3(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A3, by client 1: test known rows with the shapes that the server sent.

    It works like A2, with any class mean that the client knows.
    """
    if seen.geometry is None or not seen.geometry.shapes:
        yield nothing("A3", "client", _LEVEL, "the server sends no shapes")
        return
    k = min(truth.clients)
    scores: Scores = []
    for c, shape in seen.geometry.shapes.items():
        if clock.is_over:
            break
        centre = _known_mean(seen, truth, k, c)
        inside = [truth.rows(j, c) for j in truth.clients if j != k]
        members, outside = torch.cat(inside), truth.of_class(c)[1]
        if centre is None or not len(members) or not len(outside):
            continue
        factor = (
            shape.eigenvalues.double().sqrt()[:, None] * shape.eigenvectors.T.double()
        )
        there = [seen.space.features(rows) for rows in (members, outside)]
        scores.append(_scored(_inverse(factor), centre, *there))
    yield _finding("A3", f"client {k}", scores)


def a8(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A8, by client 1: test rows by their distance to the received prototypes."""
    k = min(truth.clients)
    got = seen.prototypes.get(k)
    if got is None or not len(got.labels):
        yield nothing("A8", "client", _LEVEL, "the server sends no prototypes")
        return
    if got.counts is not None:
        got = of_the_others(got, *truth.clients[k], seen.space)
    scores: Scores = []
    for c in got.labels.unique().tolist():
        anchors = got.prototypes[got.labels == c].double()
        inside = [truth.rows(j, c) for j in truth.clients if j != k]
        parts = torch.cat(inside), truth.of_class(c)[1]
        if all(len(rows) for rows in parts):
            there = [seen.space.features(rows) for rows in parts]
            near = [cosine(rows, anchors).max(dim=1).values.numpy() for rows in there]
            scores.append((near[0], near[1]))
    yield _finding("A8", f"client {k}", scores)


def a10(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A10, by the server: test rows by their leverage in the sums over all clients."""
    if seen.noisy is not None:
        from .released import a10_of_release  # for which the extra is needed

        yield from a10_of_release(seen, truth, clock)
        return
    held = seen.summed
    if held is None:
        parts = list(seen.uploads.values())
        if not parts or parts[0].content == "means":
            yield nothing("A10", "server", _LEVEL, "no scatter is known")
            return
        held = sum((part.to("pooled") for part in parts[1:]), parts[0].to("pooled"))
    inverse = _inverse_of(held)
    scores: Scores = []
    for c in held.classes:
        inside, outside = truth.of_class(c)
        if len(inside) and len(outside) and not clock.is_over:
            scores.append(_scored(inverse, held.means[c], inside, outside))
    yield _finding("A10", "server", scores, "of sums over all clients")


def _finding(attack: str, observer: str, scores: Scores, note: str = "") -> Finding:
    members, others = (
        np.concatenate([np.zeros(0), *(pair[i] for pair in scores)]) for i in (0, 1)
    )
    return membership(attack, observer, members, others, note=note)


def _scored(
    inverse: Tensor | None, centre: Tensor, inside: Tensor, outside: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Score rows by minus their distance from `centre`, in the metric `inverse`.

    Likelier members have higher scores.
    """
    scores = []
    for rows in (inside, outside):
        off = rows.double() - centre.double()
        turned = off if inverse is None else off @ inverse
        scores.append(-(turned * off).sum(dim=1).clamp(min=0).log1p().numpy())
    return scores[0], scores[1]


def _inverse(factor: Tensor) -> Tensor:
    """The inverse of ``F^T F``, with a large value outside its span.

    A component outside the span counts a million times as much as one along the largest
    direction.
    """
    _, s, v = torch.linalg.svd(factor, full_matrices=False)
    largest = float(s.max()) ** 2 if len(s) else 1.0
    least = 1e-6 * max(largest, 1e-300)
    kept = s.square() > 1e-9 * largest
    v, s = v[kept], s[kept]
    inside = (v.T / (s.square() + least)) @ v
    return inside + (torch.eye(factor.shape[1]).double() - v.T @ v) / least


def _inverse_of(held: Statistics) -> Tensor | None:
    if held.content == "means":
        return None
    values, vectors = torch.linalg.eigh(held.scatter())
    return _inverse(values.clamp(min=0).sqrt()[:, None] * vectors.T)


def _known_mean(seen: Transcript, truth: Truth, k: int, c: int) -> Tensor | None:
    """A mean of class `c` that client `k` knows, in the space of training.

    It is a prototype, or the client's own mean if the shapes contain its rows.
    """
    got = seen.prototypes.get(k)
    if got is not None and (got.labels == c).any():
        mean = got.prototypes[got.labels == c][0].double()
        raw = got.counts is not None
        return seen.space.features(mean[None])[0] if raw else mean
    rows = truth.rows(k, c)
    if len(rows) < seen.role.min_samples:
        return None
    return seen.space.features(rows).mean(dim=0)
