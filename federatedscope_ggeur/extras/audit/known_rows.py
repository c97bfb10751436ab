"""A2, A3, A8, A10: test whether a known row is a training row.

A1 and A1b: compute the rows of a class from its mean and covariance.

Let the class have n rows, the mean mu, and a factor F of the scatter (``F^T F = n
Sigma``, rank n - 1). Its rows are ``x_i = mu + F^T u_i`` with ``|u_i|^2 = 1 - 1/n`` and
``u_i u_j = -1/n``. So only a rotation of the u_i is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import least_squares, linprog
from torch import Tensor

from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    of_the_others,
)
from federatedscope_ggeur.federation.exchanges.space import rows_for_totals
from federatedscope_ggeur.geometry import Space, Statistics

from .base import (
    AttackResult,
    Clock,
    Report,
    Transcript,
    Truth,
    cosine,
    drawn_classes,
    matched,
)

_LEVEL = "membership"
Scores = list[tuple[np.ndarray, np.ndarray]]


def a2(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A2, by the server: test whether a known row is in one client's statistics.

    If row x is a member, ``x - mu`` lies in the span of the scatter. Without a scatter,
    the attack uses the distance of x from the mean, in units of the deviations that
    totals give. Totals for the space are attacked likewise, as one class.
    """
    report = Report("A2", "server", _LEVEL)
    if not seen.uploads and not seen.totals:
        return report.nothing("no client sends its own statistics")
    scores: Scores = []
    for k, upload in seen.uploads.items():
        pooled = None if upload.content == "class" else _inverse_of(upload)
        if upload.content == "means" and k in seen.totals:
            pooled = _inverse_of_squares(seen.totals[k].within_squares)
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
    outside, demands = truth.others[0].double(), seen.role.demands
    for k, sent in seen.totals.items():
        x, y = truth.clients[k]
        own = demands.own_statistics
        inside = x[rows_for_totals(y, truth.counts(k), seen.role.min_samples, own)]
        if len(inside) and not clock.is_over:
            inverse = _inverse_of_squares(sent.totals.squares)
            scores.append(_scored(inverse, sent.totals.mean, inside, outside))
    return _finding(report, scores)


def a3(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A3, by client 1: test known rows with the shapes that the server sent.

    Scatters of classes, to leave rows out of them, will do, too. It works like A2, with
    any class mean that the client knows.
    """
    k = min(truth.clients)
    told = list(_covariances_told(seen, truth, k))
    if not told:
        return Report("A3", "client", _LEVEL).nothing("the server sends no shapes")
    scores: Scores = []
    for c, factor, centre, space in told:
        if clock.is_over:
            break
        members, outside = truth.of_class(c, but=k)
        if centre is None or not len(members) or not len(outside):
            continue
        there = [space.features(rows) for rows in (members, outside)]
        scores.append(_scored(_inverse(factor), centre, *there))
    return _finding(Report("A3", f"client {k}", _LEVEL), scores)


def _covariances_told(
    seen: Transcript, truth: Truth, k: int
) -> Iterator[tuple[int, Tensor, Tensor | None, Space]]:
    """Yield each class, a factor [r, D] of its covariance that client `k` got, a mean
    that it knows, and the space of both."""
    shapes = {} if seen.geometry is None else seen.geometry.shapes
    for c, shape in shapes.items():
        scales = shape.eigenvalues.double().sqrt()
        factor = scales[:, None] * shape.eigenvectors.T.double()
        yield c, factor, _known_mean(seen, truth, k, c), seen.space
    for c, scatter, mean in seen.class_scatters:
        values, vectors = torch.linalg.eigh(scatter)
        factor = values.clamp(min=0).sqrt()[:, None] * vectors.T
        yield c, factor, mean, Space.raw(len(mean))


def a8(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A8, by client 1: test rows by their distance to the received prototypes."""
    k = min(truth.clients)
    got = seen.prototypes.get(k)
    if got is None or not len(got.labels):
        return Report("A8", "client", _LEVEL).nothing("the server sends no prototypes")
    if got.counts is not None:
        got = of_the_others(got, *truth.clients[k], seen.space)
    scores: Scores = []
    for c in got.labels.unique().tolist():
        anchors = got.prototypes[got.labels == c].double()
        parts = truth.of_class(c, but=k)
        if all(len(rows) for rows in parts):
            there = [seen.space.features(rows) for rows in parts]
            near = [cosine(rows, anchors).max(dim=1).values.numpy() for rows in there]
            scores.append((near[0], near[1]))
    return _finding(Report("A8", f"client {k}", _LEVEL), scores)


def a10(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A10, by the server: test rows by their leverage in the sums over all clients."""
    if seen.noisy is not None:
        from .released import a10_of_release  # for which the extra is needed

        return a10_of_release(seen, truth, clock)
    report, held = Report("A10", "server", _LEVEL), seen.summed
    if held is None:
        parts = list(seen.uploads.values())
        if not parts or parts[0].content == "means":
            return report.nothing("no scatter is known")
        held = sum((part.to("pooled") for part in parts[1:]), parts[0].to("pooled"))
    inverse = _inverse_of(held)
    scores: Scores = []
    for c in held.classes:
        inside, outside = truth.of_class(c)
        if len(inside) and len(outside) and not clock.is_over:
            scores.append(_scored(inverse, held.means[c], inside, outside))
    return _finding(report, scores, "of sums over all clients")


def _finding(report: Report, scores: Scores, note: str = "") -> list[AttackResult]:
    members, others = (
        np.concatenate([np.zeros(0), *(pair[i] for pair in scores)]) for i in (0, 1)
    )
    return report.membership(members, others, note)


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


def _inverse_of_squares(squares: Tensor | None) -> Tensor | None:
    """The inverse of the diagonal scatter with these sums of squares [D]."""
    if squares is None:
        return None
    least = 1e-6 * max(float(squares.max()), 1e-300)
    return torch.diag(1 / (squares + least))


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


#: With more rows, the attacks recover no row.
_MOST_ROWS, _MOST_BY_NORM = 40, 4


def a1(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A1: compute non-negative rows, which are vertices of a polytope.

    The polytope is ``{u : mu + F^T u >= 0}``. A row with enough zeros is one of its
    vertices, since each zero makes a constraint tight.
    """
    return _attacked("A1", seen, truth, clock, _MOST_ROWS, by_vertices)


def a1b(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A1b: solve for the rows of a class if all rows have length 1.

    The known length gives n - 1 more equations, enough for up to n = 4 rows.
    """
    return _attacked("A1b", seen, truth, clock, _MOST_BY_NORM, by_norms)


def _attacked(name, seen, truth, clock, most, solve) -> list[AttackResult]:
    report, targets = Report(name, "server"), dict(_targets(seen, most))
    if not targets:
        why = f"no client sends the mean and covariance of up to {most} rows"
        return report.nothing(why)
    recovered = tried = classes = 0
    for pair in drawn_classes({p: n for p, (n, _, _) in targets.items()}, truth.seed):
        if clock.is_over:
            break
        n, mean, factor = targets[pair]
        rows = truth.rows(*pair) if pair[0] else truth.of_class(pair[1])[0]
        tried += len(rows)
        classes += 1
        recovered += matched(solve(mean, factor, n, clock, truth.seed), rows)
    notes = [] if recovered else [f"not recovered in {clock.seconds:g} s"]
    notes += [f"{classes} of {len(targets)} classes"] * (classes < len(targets))
    return report.counted("rows recovered", recovered, tried, "; ".join(notes))


def _targets(seen: Transcript, most: int):
    """Map each attacked (client, class) to its rows, mean and factor.

    Client 0 stands for all clients together.
    """
    held = {k: u for k, u in seen.uploads.items() if u.content == "class"}
    for k, upload in held.items():
        for c in upload.classes:
            n = int(upload.counts[c])
            if 2 <= n <= most:
                yield (k, c), (n, upload.means[c], upload.factor(c))
    for k, one in {**seen.uploads, 0: seen.summed}.items():
        # A scatter summed over classes belongs to one class if only one has rows.
        if one is not None and one.content == "pooled" and len(one.classes) == 1:
            c = one.classes[0]
            if 2 <= int(one.counts[c]) <= most:
                yield (k, c), (int(one.counts[c]), one.means[c], one.factor())


def by_vertices(
    mean: Tensor, factor: Tensor, n: int, clock: Clock, seed: int
) -> Tensor:
    """Find rows [m, D] that are vertices of the polytope in `a1`."""
    mu, f = mean.numpy(), factor.double().numpy()
    scale, rank = float(mu.max()), len(f)
    none = torch.zeros(0, len(mu), dtype=torch.float64)
    if not scale > 0 or mu.min() < -1e-6 * scale or not rank:
        return none
    rng, length = np.random.default_rng(seed), (1 - 1 / n) ** 0.5
    rows: list[np.ndarray] = []
    for _ in range(40 * n):
        if clock.is_over or len(rows) == n:
            break
        aim = rng.normal(size=rank)
        for _ in range(6):
            solved = linprog(
                aim, A_ub=-f.T, b_ub=mu, bounds=(None, None), method="highs"
            )
            if solved.status != 0:
                break
            u = solved.x
            x = mu + f.T @ u
            tight = int((x < 1e-4 * scale).sum())
            if abs(np.linalg.norm(u) - length) < 2e-3 and tight >= rank + 3:
                if all(np.abs(x - y).max() > 1e-3 * scale for y in rows):
                    rows.append(x)
                break
            aim = f @ (1 / (np.maximum(x, 0) / scale + 0.01))
    return torch.from_numpy(np.array(rows)) if rows else none


def by_norms(mean: Tensor, factor: Tensor, n: int, clock: Clock, seed: int) -> Tensor:
    """Find rows [m, D] by rotations that give every row the length 1."""
    mu, f = mean.numpy(), factor.double().numpy()
    none = torch.zeros(0, len(mu), dtype=torch.float64)
    # |x|^2 sums to n |mu|^2 + tr over all rows; with rows of length 1 this is n.
    square = float(mu @ mu) + float((f * f).sum()) / n
    rank = len(f)
    if rank != n - 1 or abs(square - 1) > 1e-2:
        return none
    start = _simplex(n)
    rng, guesses = np.random.default_rng(seed), []
    pairs = [(i, j) for i in range(rank) for j in range(i)]

    def rows(angles: np.ndarray, flip: float) -> np.ndarray:
        turned = start.copy()
        turned[:, 0] *= flip
        for (i, j), angle in zip(pairs, angles):
            one, other = turned[:, i].copy(), turned[:, j].copy()
            turned[:, i] = np.cos(angle) * one - np.sin(angle) * other
            turned[:, j] = np.sin(angle) * one + np.cos(angle) * other
        return mu + turned @ f

    def misfit(angles: np.ndarray, flip: float) -> np.ndarray:
        return (rows(angles, flip) ** 2).sum(axis=1) - square

    for trial in range(12 if pairs else 1):
        if clock.is_over:
            break
        flip = 1.0 if trial % 2 else -1.0
        angles = rng.uniform(0, 2 * np.pi, size=len(pairs))
        if pairs:
            angles = least_squares(misfit, angles, args=(flip,), xtol=1e-14).x
        if np.abs(misfit(angles, flip)).max() < 1e-6 or not pairs:
            guesses.append(rows(angles, flip))
    return torch.from_numpy(np.concatenate(guesses)) if guesses else none


def _simplex(n: int) -> np.ndarray:
    """A simplex: n points u_i in n - 1 dimensions.

    They have ``|u_i|^2 = 1 - 1/n`` and ``u_i u_j = -1/n``.
    """
    centred = np.eye(n) - 1 / n
    basis, _, _ = np.linalg.svd(centred)
    return centred @ basis[:, : n - 1]
