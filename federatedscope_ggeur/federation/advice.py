"""Notes at the start of a run whose settings will do next to nothing.

Each note is made from plain numbers and says what to change. "" means no note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from federatedscope_ggeur.errors import listed, setting
from federatedscope_ggeur.federation.holdings import Withheld, median_rows
from federatedscope_ggeur.federation.optimizers import (
    OptimizerSettings,
)
from federatedscope_ggeur.federation.training_settings import TrainingSettings

#: Shares of pairs and of rows that may be withheld without a note; see `is_much`.
MOST_PAIRS, MOST_ROWS = 0.5, 0.1
#: See `fewest_batches` and `rate_note`.
TELLING, TOO_LARGE = 0.1, 10.0
#: Fewer mini-batches in a round give a note.
FEW_BATCHES = 10


def is_much(withheld: Withheld) -> bool:
    """Whether so much is withheld that the run does not do what the user asked for.

    There are three limits. More than half of the pairs: the typical client gets shapes
    and prototypes of its classes from others alone. More than a tenth of the rows: the
    pooled statistics describe other data, since rare classes are missing. A class that
    no client sends: a one-shot head never predicts it. The limits follow from the
    meaning of the threshold, not from any score.
    """
    return (
        withheld.pair_share > MOST_PAIRS
        or withheld.row_share > MOST_ROWS
        or withheld.classes > 0
    )


def withheld_text(withheld: Withheld) -> str:
    """What is withheld, in one line."""
    if not withheld.pairs:
        return (
            f"{setting('min_samples')} {withheld.threshold} withholds nothing of "
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
    """The highest threshold below `threshold` that withholds little of `counts` [K, C];
    1, which withholds nothing, if there is no other.
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
    """The domains that statistics lack too much of, each with what is lacking.

    That is more than a tenth of its rows, or half of its classes. Counts pooled over
    domains would not show a small domain. The result is empty if there is one domain.

    Parameters
    ----------
    counts : int array [K, C]
    threshold : int
    domains : sequence of str, of length K
        The domain of each client.
    """
    found = []
    names = list(dict.fromkeys(domains))
    for domain in names if len(names) > 1 else []:
        held = counts[[other == domain for other in domains]]
        withheld = Withheld.from_counts(held, threshold)
        classes = int((held > 0).any(axis=0).sum())
        half = 0 < classes <= 2 * withheld.classes
        if withheld.row_share > MOST_ROWS or half:
            found.append(
                f"{domain} ({_percent(withheld.row_share)} of its rows, all of "
                f"{withheld.classes} of its {classes} classes)"
            )
    return found


def withheld_note(
    counts: np.ndarray, threshold: int, domains: Sequence[str] = ()
) -> str:
    """A note if the threshold withholds many of the rows `counts` [K, C].

    It looks at all clients together and at each of their `domains`.
    """
    withheld = Withheld.from_counts(counts, threshold)
    lacking = lacking_domains(counts, threshold, domains)
    if not is_much(withheld) and not lacking:
        return ""
    lower = better_threshold(counts, threshold, domains)
    less = Withheld.from_counts(counts, lower)
    lets = f"statistics of {lower} rows" if lower > 1 else "single rows"
    where = f". Most in the domains {listed(lacking, 5)}" if lacking else ""
    return (
        f"{withheld_text(withheld)}: what is made of statistics lacks these{where}. "
        f"What helps, and costs: {setting('min_samples')} {lower} withholds "
        f"{_percent(less.pair_share)} and {_percent(less.row_share)}, and lets {lets} "
        f"be sent; {setting('secure_sums')} counts the rows of a class over all "
        "clients, and needs all of them to the end (ggeur_own_embeddings_private.yaml "
        f"is set up for it); {setting('closed_form')} none with {setting('steps')} [] "
        "trains FedAvg on all rows, and an update of a head can tell of single ones"
    )


def step2_note(sources: Sequence[object], prototypes: str, pooled: bool) -> str:
    """A note if step 2 has no prototypes.

    Parameters
    ----------
    sources : sequence
        The source of each client, as in `holdings.sources`.
    prototypes : {"domain", "client"}
    pooled : bool
        Whether one client holds all rows.
    """
    if pooled:
        return "step 2 adds nothing, all rows are in one place"
    if len(set(sources)) > 1:
        return ""
    if prototypes != "domain" or len(sources) == 1:
        return "step 2 adds nothing, there is one client"
    return (
        f"step 2 adds nothing, there is one domain; {setting('prototypes')}: client "
        "takes the other clients' prototypes instead"
    )


def share_note(share: float) -> str:
    """A note if an epoch takes a `share` of the augmented set."""
    if share == 1:
        return ""
    return (
        f"{setting('epoch_share')} {share:g} is not the paper's run: an epoch takes "
        "that share of the augmented set, and SGD goes as far in fewer steps"
    )


def reach_text(training: TrainingSettings, rows: int) -> str:
    """How far SGD goes in a round on so many rows, for a person."""
    optimizer = training.optimizer
    momentum = optimizer.momentum
    beside = f", momentum {momentum:g}" if momentum else ""
    return (
        f"T of a round, mini-batches x rate / (1 - momentum), is "
        f"{training.reach(rows):.3g} for the median client: {training.batches(rows)} "
        f"mini-batches, rate {optimizer.lr:.3g}{beside}"
    )


def descent_step(optimizer: OptimizerSettings, square_norm: float) -> float:
    """lr E|x|^2 / (1 - momentum): how far one mini-batch can move a row's logits.

    Momentum m makes a step 1 / (1 - m) times as long.
    """
    options = optimizer.options
    damped = 1 - options.get("dampening", 0.0)
    return optimizer.lr * square_norm * damped / (1 - options.get("momentum", 0.0))


def fewest_batches(step: float, num_classes: int) -> float:
    """How many mini-batches of a `descent_step` a linear head needs to know its rows.

    A row is known at p = 1/2. From equal logits, the logit of its class must then gain
    ln C on the others. One mini-batch gains at most r step / C: C classes share the
    gradient, and r is the share of E|x|^2 that tells classes apart. r is below 1, since
    the common mean and the spread within classes take the rest. A tenth (`TELLING`)
    stands for it.
    """
    return num_classes * math.log(num_classes) / (TELLING * step)


def rate_note(
    training: TrainingSettings, square_norm: float, num_classes: int, batches: int
) -> str:
    """A note if a linear head is trained at a rate that cannot fit its embeddings.

    The cross-entropy of a linear head has the Hessian E[(diag(p) - p p') (x) x x']. At
    the start p = 1 / C, and diag(p) - p p' has eigenvalues of 1 / C. So the loss is
    L-smooth there with L of at most E|x|^2 / C, and embeddings that are not centred
    come near it. Gradient descent works best with a step of 1 / L and goes up from 2 /
    L on. In terms of `descent_step` these are C and 2 C.

    Above 10 C the rate is too large. Between 2 C and 10 C the loss rises first and
    falls once rows are known, since their curvature is small. Below C the rate is too
    small if the whole run is shorter than `fewest_batches`. Optimisers that scale their
    steps (Adam) get no note, nor do large steps that a clipped gradient bounds.

    Parameters
    ----------
    training : TrainingSettings
    square_norm : float
        E|x|^2.
    num_classes : int
        C.
    batches : int
        Mini-batches that a client takes one after the other, over all rounds.
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
        f"too small for the run's {batches} mini-batches a client"
        if small
        else f"{step / num_classes:.0f} times what the loss's curvature allows"
    )
    return (
        f"{setting('optimizer.lr')} {optimizer.lr:g} is {why}, on embeddings whose "
        f"squared length is {square_norm:.3g}; about "
        f"{float(f'{optimizer.lr * num_classes / step:.1g}'):g} would fit"
    )


def batches_note(rows: Sequence[int], training: TrainingSettings) -> str:
    """A note if the median client with rows takes few mini-batches in a round.

    `rows` are those of the clients' sets, augmentation included. After so few steps the
    average of clients is little more than one gradient step. A round's messages buy no
    more than that.
    """
    median = median_rows(rows)
    batches = training.batches(median)
    if not 0 < batches < FEW_BATCHES:
        return ""
    wanted = replace(training, local_update_steps=1).batches(median)
    which = f" (the median, with {median} rows)"
    return (
        f"a client takes {batches} mini-batch{'es' if batches > 1 else ''} a round"
        f"{which if training.batch_or_epoch == 'epoch' else ''}, which is little "
        "for what a round sends; "
        f"{setting('local_update_steps')} {-(-FEW_BATCHES // wanted)} or more would "
        "give 10"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
