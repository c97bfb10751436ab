"""Keys of heads in closed form and of the calibration after the last round."""

from __future__ import annotations

from federatedscope_ggeur.settings.key import Key
from federatedscope_ggeur.settings.rules import (
    NOT_SET,
    fraction,
    one_of,
    positive,
    whole,
)

_PRIORS = one_of("counts", "none")

HEAD_KEYS = (
    Key(
        "closed_form",
        "none",
        "A head worked out from the statistics of round 0: none, ncm (nearest class "
        "mean), lda, qda (linear and quadratic discriminants), ridge.",
        one_of("none", "ncm", "lda", "qda", "ridge"),
        shared=True,
    ),
    Key(
        "init",
        "random",
        "Where training starts: random, or closed_form, at the head that "
        "ggeur.closed_form names. With random a closed form is the whole run: there "
        "are no rounds of training.",
        one_of("random", "closed_form"),
        shared=True,
    ),
    Key(
        "statistics",
        "class",
        "Scatters that clients send in round 0: class, one for each class; summed, one "
        "summed over classes, which is enough for ncm, lda and ridge.",
        one_of("class", "summed"),
        shared=True,
    ),
    Key(
        "lda.shrinkage",
        NOT_SET,
        "LDA, and what QDA shrinks to: share of the spherical covariance in the common "
        "one, 0 to 1; -1: by Ledoit-Wolf's rule.",
        fraction(not_set_allowed=True),
    ),
    Key(
        "lda.priors",
        "counts",
        "LDA: prior of a class by merged counts, or none: the same for all.",
        _PRIORS,
    ),
    Key(
        "qda.shrinkage",
        0.5,
        "QDA: share of LDA's common covariance in that of a class, 0 to 1.",
        fraction(),
    ),
    Key("qda.priors", "counts", "QDA: as lda.priors.", _PRIORS),
    Key(
        "ridge.alpha",
        1.0,
        "Ridge regression on one-hot labels: weight of the squared norm.",
        positive,
    ),
    Key(
        "calibrate",
        "none",
        "After the last round: none, or ccvr, the last layer trained again on draws "
        "from the clients' merged class statistics of what it takes in.",
        one_of("none", "ccvr"),
        shared=True,
    ),
    Key("ccvr.samples", 500.0, "CCVR: draws for each class.", whole(1)),
    Key(
        "ccvr.epochs",
        10.0,
        "CCVR: epochs on the draws, with train.optimizer and dataloader.batch_size.",
        whole(1),
    ),
)
