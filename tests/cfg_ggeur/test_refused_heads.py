"""Settings of heads, statistics and calibration that cannot go together."""

import pytest

from federatedscope_ggeur.errors import ConfigError

LDA = ["ggeur.closed_form", "lda"]
START = ["ggeur.init", "closed_form"]
STATISTICS, GEOMETRY = "ggeur.statistics", ["ggeur.geometry", "pooled"]
PERSONAL = ["ggeur.personal.head", "means"]
SHARE = ["ggeur.epoch_share", 0.5]
STRENGTH = ["ggeur.ridge.strength", 0.1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (START, "init: must be random .* take .*lda"),
        (["ggeur.closed_form", "mixture", *START], "init: must be random .*: mixture"),
        (["ggeur.closed_form", "svm"], "closed_form: must be one of"),
        ([*LDA, "ggeur.mlp_hidden_dim", 8], "mlp_hidden_dim: must be 0"),
        ([*LDA, "ggeur.calibrate", "ccvr"], "calibrate: must be none"),
        (["ggeur.lda.shrinkage", 1.5], "lda.shrinkage: "),
        (["ggeur.ridge.alpha", 0.0], "ridge.alpha: "),
        (
            [*STRENGTH, "ggeur.closed_form", "ridge", "ggeur.ridge.alpha", 1.0],
            "ridge.alpha: cannot go with",
        ),
        (["ggeur.keep", "best"], "keep"),
        (["ggeur.keep", "both"], "keep"),
        (
            ["ggeur.closed_form", "fisher", *START, "ggeur.keep", "average"],
            "closed_form: must be auto or .*lda.* with ggeur.keep: average",
        ),
        ([*LDA, "ggeur.keep", "best"], "keep"),
        ([*LDA, *START, "ggeur.keep", "best", "ggeur.calibrate", "ccvr"], "keep"),
        (
            [*START, "ggeur.keep", "best", "ggeur.base_method", "local"],
            "keep: must be trained with .*local",
        ),
        ([*LDA, "ggeur.confidences", True, "ggeur.temperature", "none"], "confidences"),
        ([*PERSONAL, "ggeur.closed_form", "ridge"], "personal.head"),
        ([*PERSONAL, *LDA, "ggeur.temperature", "none"], "personal.head"),
        ([*LDA, "ggeur.personal.prior", "own"], "personal.prior|no own heads"),
        (["ggeur.geometry", "shared"], "geometry: must be one of"),
        (["ggeur.compressed.dtype", "int4"], "compressed.dtype: must be"),
        (["ggeur.compressed.rank", 0], "compressed.rank: must be"),
        (["ggeur.compressed.energy", 0.0], "compressed.energy: must be"),
        ([STATISTICS, "summed"], "statistics: summed needs one of"),
        ([STATISTICS, "means"], "statistics: means needs one of"),
        ([STATISTICS, "compressed"], "compressed needs one of .*geometry: pooled"),
        (
            ["ggeur.closed_form", "fisher", STATISTICS, "summed"],
            "statistics: must be class",
        ),
        (
            ["ggeur.closed_form", "fisher", STATISTICS, "compressed"],
            "statistics: must be class with ggeur.closed_form: fisher",
        ),
        (
            [*LDA, *START, STATISTICS, "summed"],
            "statistics: must be class with ggeur.steps",
        ),
        (
            [*LDA, STATISTICS, "means"],
            "statistics: must be class or summed or compressed with "
            "ggeur.closed_form: lda, which needs the scatter within classes",
        ),
        (
            ["ggeur.closed_form", "ncm", *START, STATISTICS, "means", *GEOMETRY],
            "must be class or summed or compressed with ggeur.geometry: pooled",
        ),
        (
            [*GEOMETRY, STATISTICS, "summed", "ggeur.calibrate", "ccvr"],
            "statistics: must be class with ggeur.calibrate: ccvr",
        ),
        ([*SHARE, "ggeur.steps", "[]"], "must be 1 in a run without an augmented set"),
        ([*SHARE, *LDA], "must be 1 in a run without"),
        ([*SHARE, "train.batch_or_epoch", "batch"], "must be 1 with train.batch_or_e"),
        ([*SHARE, "train.optimizer.type", "Adam"], "must be SGD with ggeur.epoch_sh"),
        (["ggeur.epoch_share", 0], "must be above 0 and at most 1"),
        (["ggeur.epoch_share", 1.5], "must be above 0 and at most 1"),
    ],
    ids=lambda given: " ".join(map(str, given)) if isinstance(given, list) else "",
)
def test_contradictions_are_refused_by_name(config, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        config(*settings)


def test_an_alpha_beside_a_strength_is_nothing_to_another_form(config):
    assert config(*LDA, *STRENGTH, "ggeur.ridge.alpha", 1.0)
