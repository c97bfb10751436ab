"""Settings of augmentation: GGEUR's steps and the clients' training sets.

The settings of training sets, which server and clients share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.extras import settings_for_totals
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    PerAnchorSizes,
    ReleaseSizes,
    Sizes,
    TotalSizes,
)
from federatedscope_ggeur.methods import AUGMENTATIONS
from federatedscope_ggeur.settings import (
    Objection,
    Objections,
    Section,
    key,
    one_of,
    positive_share,
    steps,
    whole,
)


@dataclass(frozen=True)
class SetSettings:
    """How a client makes its training set, and its aggregation weight.

    Attributes
    ----------
    augmentation : AugmentationSettings
    prototypes : {"domain", "client", "others"}
        Whether a class has one prototype for each other domain, one for each other
        client, or one over all other clients.
    weight : {"augmented", "original", "statistics"}
        Which rows the weight n_k counts: those of the training set, the client's own
        rows, or the rows in its statistics.
    train_withheld : bool
        Whether the client trains on rows of withheld classes.
    averaged : bool
        Whether the run may leave the mean of a one-shot head and of a trained one. For
        most such means no rows are drawn; see `Averaging.alone`.
    """

    augmentation: AugmentationSettings
    prototypes: str = "domain"
    weight: str = "augmented"
    train_withheld: bool = True
    averaged: bool = False

    @property
    def expected(self) -> AugmentationSettings:
        """The rules to expect before round 0 shows which head the run leaves."""
        rules = self.augmentation
        return replace(rules, steps=()) if self.averaged else rules


#: The paper's sizes: 2000 with step 1 alone, 500 and 500 with both (Section 3.2).
SINGLE_DOMAIN_SIZE, MULTI_DOMAIN_SIZE, PROTOTYPE_SIZE = 2000, 500, 500
#: The published code's size for Digits, and the plugin document's recommended number.
RELEASE_TARGET, PER_ANCHOR = 2000, 50
#: For step 2 around the one mean over all other clients.
OTHERS_SIZE = 600


class AugmentationKeys(Section):
    """The settings of augmentation."""

    augmentation: str = key(
        "ggeur",
        "What happens to embeddings in training. ggeur: GGEUR with the steps of "
        "ggeur.steps. none: nothing. Any other name is a baseline augmentation.",
        AUGMENTATIONS.rule,
        shared=True,
    )
    steps: tuple[int, ...] = key(
        (1, 2),
        "GGEUR's augmentation steps: [] none, [1] single-domain, [1, 2] multi-domain, "
        "[2] around prototypes alone.",
        steps,
        shared=True,
    )
    scale: str = key(
        "covariance",
        "Length of the noise along direction m: covariance sqrt(lambda_m), eigenvalue "
        "lambda_m (the paper's formula).",
        one_of("covariance", "eigenvalue"),
    )
    noise: str = key(
        "fixed",
        "fixed: the same augmented set in every round; fresh: new noise in "
        "every round.",
        one_of("fixed", "fresh"),
    )
    epoch_share: float = key(
        1.0,
        "Share of the augmented set in one epoch. Each round draws it anew, with new "
        "noise and the class proportions and aggregation weights of the whole set. A "
        "larger momentum (0.9) and learning rate make up for the fewer steps of SGD. "
        "Below 1 the run is cheaper; it is not the paper's.",
        positive_share,
        shared=True,
    )
    geometry: str = key(
        "class",
        "Shapes that the server sends for GGEUR. class: one for each class. pooled: "
        "one for all classes, from the scatter within classes.",
        one_of("class", "pooled"),
        shared=True,
    )
    prototypes: str = key(
        "domain",
        "Anchors of step 2, for each class. domain: one for each other domain. "
        "client: one for each other client. others: one mean over all other clients; "
        "secure sums need it.",
        one_of("domain", "client", "others"),
    )
    sizes: str = key(
        "auto",
        "How many rows a class gets. paper: step 1 fills the class up to step1_size, "
        "and step 2 adds step2_size for each prototype; a larger class keeps all its "
        "rows, and step 1 adds none. release: the published code's rule. With steps "
        "[1] and no target_size_per_class it is that of paper; otherwise step 1 adds "
        "step1_size new rows to each class, step 2 adds step2_size for each "
        "prototype, and target_size_per_class cuts the class. document: the plugin "
        "document's rule. Each row and each prototype gets new rows, and "
        "target_size_per_class cuts the class if it is set. A cut keeps own rows "
        "first and fills up with new ones, at random. auto: document if one of its "
        "keys is set, otherwise paper.",
        one_of("auto", "paper", "release", "document"),
    )
    step1_size: int | None = key(
        None,
        "paper: rows of a class after step 1, its own rows included; -1: "
        "2000 with steps [1], otherwise 500. release: the same with steps [1] and no "
        "target, otherwise the new rows of a class in step 1; -1: 500.",
        whole(0, not_set_allowed=True, maximum=10**9),
    )
    step2_size: int | None = key(
        None,
        "paper, release: new rows for each prototype in step 2; -1: 500, or "
        "600 with prototypes others, where a class has only one prototype.",
        whole(0, not_set_allowed=True, maximum=10**9),
    )
    num_generated_per_sample: int | None = key(
        None,
        "document: new rows around each embedding in step 1; -1: 50.",
        whole(0, not_set_allowed=True, maximum=10**9),
    )
    num_generated_per_prototype: int | None = key(
        None,
        "document: new rows for each prototype in step 2; -1: 50.",
        whole(0, not_set_allowed=True, maximum=10**9),
    )
    target_size_per_class: int | None = key(
        None,
        "release, document: rows of a class after the cut, its own rows included; -1: "
        "2000 with release and step 2, otherwise no cut.",
        whole(1, not_set_allowed=True),
    )
    weight: str = key(
        "augmented",
        "Number of rows that a client counts for in averages; the server learns it. "
        "augmented: all rows that the client trains on. original: its own rows. "
        "statistics: the rows that it sends statistics of, so that this number tells "
        "nothing of withheld rows.",
        one_of("augmented", "original", "statistics"),
    )
    train_withheld: bool = key(
        True,
        "Train on rows of classes in which the client has fewer rows than "
        "privacy.min_samples. The update of a head reveals a class's only row. False "
        "leaves these rows out.",
        name="privacy.train_withheld",
    )


_TARGET = "target_size_per_class"
_TOTALS = ("step1_size", "step2_size")
_PER_STEP = ("num_generated_per_sample", "num_generated_per_prototype")
#: The keys that each rule of `sizes` takes.
_SIZES = {
    "paper": _TOTALS,
    "release": (*_TOTALS, _TARGET),
    "document": (*_PER_STEP, _TARGET),
}


def set_settings(run: Demands, averaged: bool) -> SetSettings:
    """The settings by which clients make their training sets."""
    own = run.of(AugmentationKeys)
    sizes = _sizes(run)
    return SetSettings(
        AugmentationSettings(run.steps, sizes, own.scale, own.noise, own.epoch_share),
        prototypes=own.prototypes,
        weight=own.weight,
        train_withheld=own.train_withheld,
        averaged=averaged,
    )


def _sizes(run: Demands) -> Sizes:
    """The chosen rule for the size of training sets, with its numbers."""

    own = run.of(AugmentationKeys)
    rule, target = own.sizes, own.target_size_per_class
    if rule == "auto":
        rule = "document" if _given(own, _SIZES["document"]) else "paper"
    if rule == "document":
        per_sample = _or(own.num_generated_per_sample, PER_ANCHOR)
        per_prototype = _or(own.num_generated_per_prototype, PER_ANCHOR)
        return PerAnchorSizes(per_sample, per_prototype, target)
    single_domain = run.steps == (1,)
    papers = single_domain and rule == "paper"
    step1 = _or(own.step1_size, SINGLE_DOMAIN_SIZE if papers else MULTI_DOMAIN_SIZE)
    # One prototype takes the place of many, see the keys.
    others = own.prototypes == "others"
    step2 = _or(own.step2_size, OTHERS_SIZE if others else PROTOTYPE_SIZE)
    if rule == "paper" or (single_domain and target is None):
        return TotalSizes(step1, step2)
    return ReleaseSizes(step1, step2, _or(target, RELEASE_TARGET))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _given(own: AugmentationKeys, fields: tuple[str, ...]) -> list[str]:
    return [name for name in fields if getattr(own, name) is not None]


def objections(run: Demands) -> Objections:
    """The settings that cannot go with the rules for training sets."""
    own = run.of(AugmentationKeys)
    if own.weight == "statistics" and not run.own_statistics:
        yield (
            "weight",
            "cannot be statistics if no client sends statistics of its own, since "
            "all weights would be 0",
        )
    if own.prototypes == "others" and not run.only_totals:
        kinds = {"prototypes": ["domain", "client"]}
        for name in settings_for_totals():
            yield Objection(name, kinds, "which has no means over all other clients")
        if not settings_for_totals():
            yield "prototypes", "must be domain or client; nothing here sums over all"
    if own.epoch_share < 1:
        yield from _without_epochs(run)
    if own.sizes == "auto":
        yield from _unclear_sizes(own)
        return
    takes = _SIZES[own.sizes]
    others = (n for n in (*_TOTALS, *_PER_STEP, _TARGET) if n not in takes)
    why = f"which takes {', '.join(takes)}"
    yield Objection("sizes", {name: [None] for name in others}, why)


def _without_epochs(run: Demands) -> Objections:
    """The settings with which an epoch cannot be cut to a share."""
    if not run.steps:
        yield "epoch_share", "must be 1 in a run without an augmented set"
    why = "which takes mini-batches of an epoch, however large it is"
    if run.batch_or_epoch == "batch":
        yield Objection("batch_or_epoch", {"epoch_share": [1]}, why)
    why = "since only for SGD the rate says how far training goes"
    yield Objection("epoch_share", {"optimizer.type": ["SGD"]}, why)


def _unclear_sizes(own: AugmentationKeys) -> Objections:
    """Size settings that do not show which size rule is meant."""
    per_anchor = _given(own, _SIZES["document"])
    if not per_anchor:
        return
    beside, rule = per_anchor[0], setting("sizes")
    why = f"which belongs to another rule; name the rule by {rule}"
    yield Objection(beside, {name: [None] for name in _TOTALS}, why)
    for step, name in enumerate(_PER_STEP, start=1):
        if step in own.steps and getattr(own, name) is None:
            is_set = f"{setting(beside)} is set and {setting('steps')} holds {step}"
            yield name, f"must be set, because {is_set}; or name the rule by {rule}"
