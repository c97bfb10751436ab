"""A6, A7, A12: attacks on shapes, on aggregation weights, and what none reads."""

from __future__ import annotations

import torch

from federatedscope_ggeur.geometry import TotalSizes

from .base import AttackResult, Clock, Report, Transcript, Truth


def a6(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A6, by a client: the rank of a class's covariance is its number of rows minus
    one."""
    report, ranks = Report("A6", "client"), seen.class_ranks()
    if not ranks:
        why = "the server sends no shape of a single class, or only of full rank"
        return report.nothing(why)
    right = 0
    for c, rank in ranks.items():
        rows = sum(int(upload.counts[c]) for upload in seen.uploads.values())
        right += rank + 1 == rows
    return report.counted("classes whose rows are known exactly", right, len(ranks))


def a7(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A7, by the server: compute the number of withheld rows from a client's weight.

    The number is the weight minus the number of rows in the client's statistics.
    """
    report = Report("A7", "server")
    if not seen.uploads or not seen.replies:
        why = "no client sends both its own statistics and an aggregation weight"
        return report.nothing(why)
    right = tried = 0
    for k, reply in seen.replies.items():
        if k not in seen.uploads:
            continue
        back = truth.counts(k) * (seen.uploads[k].counts == 0)
        if not back.any():
            continue
        guessed = withheld(seen, k, reply.aggregation_weight)
        if guessed is None:
            return report.untried(
                f"the attack cannot count rows with ggeur.weight: {seen.sets.weight} "
                "and these sizes"
            )
        tried += 1
        # If there is any shape, step 1 fills every class up to one size.
        filled = (back > 0) & bool(_shaped(seen).any())
        rest = int(back[~filled].sum())
        right += guessed in ((int(filled.sum()), rest), (-1, int(back.sum())))
    if not tried:
        return report.nothing("no client that sends statistics withholds rows")
    if seen.sets.weight == "statistics":
        right = 0  # the weight counts only rows in the client's statistics
    return report.counted("clients whose withheld rows are known", right, tried)


def withheld(seen: Transcript, k: int, weight: float) -> tuple[int, int] | None:
    """The number of withheld classes that step 1 filled, and of other withheld rows.

    The first number is -1 if the weight does not reveal such classes. The second number
    counts the rows of all other withheld classes. None if the settings do not determine
    the numbers.
    """
    told, shaped = seen.uploads[k].counts, _shaped(seen)
    own_rows = seen.sets.weight != "augmented"
    # Without any shape no rows are drawn.
    if own_rows or not shaped.any():
        return -1, int(weight) - int(told.sum())
    sizes, steps = seen.sets.augmentation.sizes, seen.sets.augmentation.steps
    if not isinstance(sizes, TotalSizes):
        return None
    known = 0
    got = seen.prototypes.get(k)
    for c in range(len(told)):
        n = int(told[c])
        known += n + (sizes.around_samples(n) if n and 1 in steps else 0)
        if got is not None and 2 in steps and shaped[c]:
            known += int((got.labels == c).sum()) * sizes.around_prototype()
    left = int(weight) - known
    if 1 not in steps:
        return -1, left
    return left // sizes.step1, left % sizes.step1


def _shaped(seen: Transcript) -> torch.Tensor:
    shapes = seen.geometry.shapes if seen.geometry is not None else {}
    classes = next(iter(seen.uploads.values())).counts
    there = torch.zeros(len(classes), dtype=torch.bool)
    there[sorted(shapes)] = True
    return there


def a12(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A12: report what no attack reads as not tried, by the name of who asks for it."""
    if not seen.unread:
        why = "attacks read all that parts of the run ask of training rows"
        return Report("A12", "server").nothing(why)
    findings: list[AttackResult] = []
    for why in seen.unread:
        for level in ("rows", "membership"):
            findings += Report("A12", "server", level).untried(why)
    return findings
