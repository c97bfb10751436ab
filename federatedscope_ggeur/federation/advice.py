"""Notes that warn, before a run starts, of settings that will do next to nothing.

Each note is made from plain numbers and says what to change. "" means no note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from federatedscope_ggeur.errors import listed, setting
from federatedscope_ggeur.extras import settings_for_totals

from .holdings import Withheld
from .optimizers import OptimizerSettings
from .settings import TrainingSettings

#: Shares of pairs and of rows that may be withheld without a note; see `is_much`.
MOST_PAIRS, MOST_ROWS = 0.5, 0.1
#: See `fewest_batches` and `rate_note`.
TELLING, TOO_LARGE = 0.1, 10.0


def is_much(withheld: Withheld) -> bool:
    """Whether the threshold withholds so much that the run cannot do what was asked.

    One of three limits is enough. If more than half of the (client, class) pairs are
    withheld, the typical client gets the shapes and prototypes of its classes only from
    other clients. If more than a tenth of the rows are withheld, rare classes are
    missing in the pooled statistics. If no client sends a class, a one-shot head never
    predicts this class. The limits follow from the meaning of the threshold. They were
    not chosen by any score.
    """
    return (
        withheld.pair_share > MOST_PAIRS
        or withheld.row_share > MOST_ROWS
        or withheld.classes > 0
    )


def withheld_text(withheld: Withheld) -> str:
    """One line that says how many pairs, rows and classes the threshold withholds."""
    if not withheld.pairs:
        return (
            f"{setting('min_samples')} {withheld.threshold} withholds none of "
            f"{withheld.of_pairs} (client, class) pairs"
        )
    lost, n = "", withheld.classes
    if n:
        lost = f", all rows of {n} class{'es' if n > 1 else ''} among them"
    return (
        f"{setting('min_samples')} {withheld.threshold} withholds {withheld.pairs} of "
        f"{withheld.of_pairs} (client, class) pairs ({_percent(withheld.pair_share)}) "
        f"and {withheld.rows} of {withheld.of_rows} rows "
        f"({_percent(withheld.row_share)}){lost}"
    )


def better_threshold(
    counts: np.ndarray, threshold: int, domains: Sequence[str] = ()
) -> int:
    """The highest threshold below `threshold` that withholds few rows.

    Returns 1, which withholds nothing, if there is no other. `counts` of shape [K, C]
    are the rows of each client and class.
    """
    below = range(threshold - 1, 1, -1)
    tried = (
        t
        for t in below
        if not is_much(Withheld.from_counts(counts, t))
        and not lacking_domains(counts, t, domains)
    )
    return next(tried, 1)


def lacking_domains(
    counts: np.ndarray, threshold: int, domains: Sequence[str]
) -> list[str]:
    """The domains of which the threshold withholds too much, with the withheld parts.

    Too much is more than a tenth of a domain's rows, or half of its classes. Each
    domain is looked at alone, since counts pooled over domains would hide a small one.
    The result is empty if there is only one domain.

    Parameters
    ----------
    counts : int array [K, C]
    threshold : int
    domains : sequence of str, of length K
        The domain of each client.
    """
    lacking = []
    names = list(dict.fromkeys(domains))
    for domain in names if len(names) > 1 else []:
        held = counts[[other == domain for other in domains]]
        withheld = Withheld.from_counts(held, threshold)
        classes = int((held > 0).any(axis=0).sum())
        half = 0 < classes <= 2 * withheld.classes
        if withheld.row_share > MOST_ROWS or half:
            lacking.append(
                f"{domain} ({_percent(withheld.row_share)} of its rows, all of "
                f"{withheld.classes} of its {classes} classes)"
            )
    return lacking


def withheld_note(
    counts: np.ndarray, threshold: int, domains: Sequence[str] = ()
) -> str:
    """A note if the threshold withholds many rows, or ""; `counts` is [K, C].

    The note looks at the rows of all clients together, and at each domain's rows.
    """
    withheld = Withheld.from_counts(counts, threshold)
    lacking = lacking_domains(counts, threshold, domains)
    if not is_much(withheld) and not lacking:
        return ""
    lower = better_threshold(counts, threshold, domains)
    sent = f"statistics of {lower} rows" if lower > 1 else "single rows"
    totals = map(setting, settings_for_totals())
    where = f", most in the domains {listed(lacking, 5)}" if lacking else ""
    return (
        f"{withheld_text(withheld)}{where}. One-shot heads and shapes lack these rows. "
        f"Choices (docs/before_a_run.md): {setting('min_samples')} {lower}, where "
        f"clients send {sent}; {''.join(f'{name}; ' for name in totals)}or training on "
        "all rows"
    )


def step2_note(sources: Sequence[object], prototypes: str, pooled: bool) -> str:
    """A note if augmentation step 2 has no prototypes to use, or "".

    Parameters
    ----------
    sources : sequence
        The source of each client, as in `holdings.sources`.
    prototypes : {"domain", "client"}
    pooled : bool
        Whether one client holds all rows.
    """
    if pooled:
        return "step 2 adds nothing because one client holds all rows"
    if len(set(sources)) > 1:
        return ""
    if prototypes != "domain" or len(sources) == 1:
        return "step 2 adds nothing because there is only one client"
    return (
        "step 2 adds nothing because there is only one domain; to use the other "
        f"clients' prototypes, set {setting('prototypes')}: client"
    )


def descent_step(optimizer: OptimizerSettings, square_norm: float) -> float:
    """How far one mini-batch can move a row's logits.

    This is lr E|x|^2 / (1 - m) with momentum m, since momentum makes a step 1 / (1 - m)
    times as long. `square_norm` is E|x|^2.
    """
    options = optimizer.options
    damped = 1 - options.get("dampening", 0.0)
    return optimizer.lr * square_norm * damped / (1 - options.get("momentum", 0.0))


def fewest_batches(step: float, num_classes: int) -> float:
    """How many mini-batches a linear head needs at least to classify its rows.

    `step` is the `descent_step`. A row counts as classified when its class has p = 1/2.
    From equal logits, the logit of its class must then gain ln C on the others. One
    mini-batch gains at most r step / C: C classes share the gradient, and r is the
    share of E|x|^2 that tells classes apart. r is below 1, since the common mean and
    the spread within classes take the rest. The constant `TELLING`, a tenth, is used
    for r.
    """
    return num_classes * math.log(num_classes) / (TELLING * step)


def rate_note(
    training: TrainingSettings, square_norm: float, num_classes: int, batches: int
) -> str:
    """A note if the learning rate of a linear head cannot fit its embeddings, or "".

    The cross-entropy of a linear head has the Hessian E[(diag(p) - p p') (x) x x']. At
    the start p = 1 / C, and diag(p) - p p' has eigenvalues of 1 / C. So the loss is
    L-smooth there with L of at most E|x|^2 / C. Embeddings that are not centred come
    near this bound. Gradient descent works best with a step of 1 / L. With more than 2
    / L the loss goes up. In terms of `descent_step` these are C and 2 C.

    Above 10 C the rate is too large. Between 2 C and 10 C the loss rises first and
    falls once rows are classified, since their curvature is small. Below C the rate is
    too small if the whole run has fewer mini-batches than `fewest_batches`. Optimisers
    that scale their steps (Adam) get no note. Large steps get none if the gradient is
    clipped.

    Parameters
    ----------
    training : TrainingSettings
    square_norm : float
        E|x|^2.
    num_classes : int
        C.
    batches : int
        Mini-batches that one client takes over all rounds.
    """
    optimizer = training.optimizer
    step = descent_step(optimizer, square_norm)
    if optimizer.type != "SGD" or step <= 0 or num_classes < 2 or batches == 0:
        return ""
    small = step < num_classes and batches < fewest_batches(step, num_classes)
    large = step > TOO_LARGE * num_classes and training.grad_clip <= 0
    if not (small or large):
        return ""
    why = (
        f"too small for the run, in which a client takes {batches} mini-batches"
        if small
        else f"{step / num_classes:.0f} times the rate that the loss's curvature allows"
    )
    return (
        f"{setting('optimizer.lr')} {optimizer.lr:g} is {why}, on embeddings whose "
        f"squared length is {square_norm:.3g}; about "
        f"{float(f'{optimizer.lr * num_classes / step:.1g}'):g} would fit"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


#: Seconds of one step: its launches, and floating-point operations in a second. As
#: measured beside an H200: on one CPU thread; on the GPU for one client, and at once.
_CPU_STEP, _CPU_FLOPS = 20e-6, 25e9
_GPU_STEP, _GPU_BATCHED_STEP = 250e-6, 20e-6
#: Seconds that a GPU costs a run, and each round.
_GPU_BEGINS, _GPU_ROUND = 1.5, 0.02


def gpu_note(
    steps: Sequence[int], rounds: int, flops: float, batched: bool, share: float
) -> str:
    """A note if heads are expected to train faster on one CPU thread than on a GPU.

    Parameters
    ----------
    steps : sequence of int
        The mini-batches of a round, for each client.
    rounds : int
    flops : float
        The floating-point operations of one mini-batch.
    batched : bool
        Whether all clients of a round train at once.
    share : float
        The share of clients that is drawn in a round.
    """
    if not rounds or not any(steps):
        return ""
    each = sum(steps) * share
    cpu = rounds * each * (_CPU_STEP + flops / _CPU_FLOPS)
    gpu = max(steps) * _GPU_BATCHED_STEP if batched else each * _GPU_STEP
    gpu = _GPU_BEGINS + rounds * (gpu + _GPU_ROUND)
    if gpu <= cpu:
        return ""
    return (
        f"a GPU is expected to train these heads in about {gpu:.2g} s, one CPU thread "
        f"in {cpu:.2g} s; for these heads leave {setting('use_gpu')} at False"
    )
