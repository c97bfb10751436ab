"""When text features are loaded, and what cannot go with `ggeur.text.*`.

Tests of extras/text/keys.py.
"""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.cfg_ggeur.transform import preparation
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.keys import TEXT_USE_KEYS

LDA = ["ggeur.closed_form", "lda"]
START = [*LDA, "ggeur.init", "closed_form"]
TEXT = ["ggeur.text.model", "fedclip"]


def settings(quickstart, *pairs):
    return load_config(quickstart, [str(part) for part in pairs])


@pytest.mark.parametrize(
    ("pairs", "used"),
    [
        ([], False),
        (LDA, False),
        (["ggeur.text.templates", ["imagenet80"]], False),
        (["ggeur.closed_form", "zeroshot"], True),
        ([*LDA, "ggeur.text.prior", 4], True),
        ([*LDA, "ggeur.text.ensemble", 1], True),
        (["ggeur.text.regulariser", 0.1], True),
        (["ggeur.text.interpolate", 0.5], True),
    ],
    ids=str,
)
def test_text_is_used_where_something_is_made_of_it(quickstart, pairs, used):
    cfg = settings(quickstart, *pairs)
    assert (preparation(cfg) is not None) == used
    agreed = [name for name in agreed_settings(cfg) if name.startswith("ggeur.text.")]
    assert bool(agreed) == used
    assert {key.name for key in TEXT_USE_KEYS} >= {
        name.removeprefix("ggeur.") for name in agreed if "templates" not in name
    }


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        (["ggeur.text.prior", 4], "text.prior: must be 0 .*auto and lda and mixture"),
        (
            ["ggeur.closed_form", "ridge", "ggeur.text.ensemble", 1],
            "text.ensemble: must be 0 with ggeur.closed_form: ridge",
        ),
        ([*START, "ggeur.text.ensemble", 1], "one head, not from two"),
        ([*LDA, "ggeur.text.regulariser", 1], "is for training"),
        ([*LDA, "ggeur.text.interpolate", 0.5], "is for training"),
        (["ggeur.text.interpolate", 2], "must lie in 0..1"),
        (["ggeur.text.prior", -1], "must lie in 0..1e\\+15"),
        (["ggeur.text.regulariser", 1, "ggeur.mlp_hidden_dim", 4], "linear head"),
        (["ggeur.text.interpolate", 0.5, "ggeur.base_method", "local"], "its own head"),
        (
            [*START, "ggeur.keep", "best", "ggeur.text.interpolate", 0.5],
            "must be 1 with ggeur.keep: best",
        ),
        (["ggeur.text.templates", ["no such"]], "neither one of"),
        (
            [
                *("data.transform", ["sqrt_l2"], "data.type", "embeddings@ggeur"),
                *("ggeur.closed_form", "zeroshot"),
            ],
            "data.transform: sqrt_l2 .*text features",
        ),
        ([*TEXT, *LDA], "closed_form: must be none with ggeur.text.m"),
        ([*TEXT, "ggeur.calibrate", "ccvr"], "calibrate: must be none"),
        ([*TEXT, "ggeur.mlp_hidden_dim", 3], "mlp_hidden_dim: must be 0"),
        ([*TEXT, "ggeur.text.interpolate", 0.5], "interpolate: must be 1"),
        ([*TEXT, "ggeur.space", "whitened"], "space: must be standard or raw"),
        (
            ["ggeur.text.model", "fedtpg", "ggeur.steps", [1]],
            r"steps: must be \[\]",
        ),
        (
            [*TEXT, "ggeur.base_method", "local"],
            "text.model: must be '' with ggeur.base_method: local",
        ),
        (["ggeur.text.model", "coop"], "must be '' or one of .*fedclip, fedtpg"),
        (["ggeur.fedtpg.n_ctx", 65], "in 1..64"),
    ],
    ids=str,
)
def test_contradictions(quickstart, pairs, problem):
    with pytest.raises(ConfigError, match=problem):
        settings(quickstart, *pairs)
