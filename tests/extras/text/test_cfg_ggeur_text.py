"""When text features are loaded, and what cannot go with `ggeur.text.*`.

Tests of extras/text/keys.py.
"""

import pytest

from federatedscope_ggeur import register_text_model
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.cfg_ggeur.transform import preparation
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.base import TextPart
from federatedscope_ggeur.extras.text.keys import TEXT_USE_KEYS
from federatedscope_ggeur.settings import Key, positive

LDA = ["ggeur.closed_form", "lda"]
START = [*LDA, "ggeur.init", "closed_form"]
TEXT = ["ggeur.text.model", "fedclip"]
ENSEMBLE, HALF = ["ggeur.text.ensemble", 1], ["ggeur.text.interpolate", 0.5]
ROWS, ZERO_SHOT = ["data.type", "embeddings@ggeur"], ["ggeur.closed_form", "zeroshot"]
LOCAL = ["ggeur.base_method", "local"]


def settings(quickstart, *pairs):
    return load_config(quickstart, [str(part) for part in pairs])


@pytest.mark.parametrize(
    ("pairs", "used"),
    [
        ([], False),
        (LDA, False),
        (["ggeur.text.templates", ["imagenet80"]], False),
        (ZERO_SHOT, True),
        ([*LDA, "ggeur.text.prior", 4], True),
        ([*LDA, *ENSEMBLE], True),
        (["ggeur.text.regulariser", 0.1], True),
        (HALF, True),
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
            ["ggeur.closed_form", "ridge", *ENSEMBLE],
            "text.ensemble: must be 0 with ggeur.closed_form: ridge",
        ),
        ([*START, *ENSEMBLE], "one head, not from two"),
        ([*LDA, "ggeur.text.regulariser", 1], "is for training"),
        ([*LDA, *HALF], "is for training"),
        (["ggeur.text.regulariser", 1, "ggeur.mlp_hidden_dim", 4], "linear head"),
        ([*HALF, *LOCAL], "its own head"),
        ([*START, "ggeur.keep", "best", *HALF], "must be 1 with ggeur.keep: best"),
        (["ggeur.text.templates", ["no such"]], "neither one of"),
        (
            [*ROWS, *ZERO_SHOT, "data.transform", ["sqrt_l2"]],
            "data.transform: sqrt_l2 .*text features",
        ),
        ([*TEXT, *LDA], "closed_form: must be none with ggeur.text.m"),
        ([*TEXT, "ggeur.calibrate", "ccvr"], "calibrate: must be none"),
        ([*TEXT, "ggeur.mlp_hidden_dim", 3], "mlp_hidden_dim: must be 0"),
        ([*TEXT, *HALF], "interpolate: must be 1"),
        (["ggeur.text.model", "fedtpg", "ggeur.steps", [1]], r"steps: must be \[\]"),
        ([*TEXT, *LOCAL], "text.model: must be '' with ggeur.base_method: local"),
        (["ggeur.text.model", "coop"], "must be '' or one of .*fedclip, fedtpg"),
    ],
    ids=str,
)
def test_contradictions(quickstart, pairs, problem):
    with pytest.raises(ConfigError, match=problem):
        settings(quickstart, *pairs)


def test_a_text_model_that_does_not_fit_is_refused_when_it_registers():
    """What is checked of a part of a user: tests/settings/test_rules.py."""
    own = {
        "__module__": __name__,
        "SETTINGS": (Key("side", 1.0, "A side.", positive),),
        "build": classmethod(lambda cls, texts: None),
    }
    with pytest.raises(TypeError, match=r"Own\.build takes \(texts\), but is called"):
        register_text_model("own")(type("Own", (TextPart,), own))


# ``embed`` of names.


def text_files(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "cache").glob("text-*")}


@pytest.mark.slow
def test_embed_makes_text_and_a_new_template_makes_text_alone(
    tmp_path, quickstart, of_images, ggeur
):
    told = [*of_images, *ZERO_SHOT]
    out = ggeur("embed", "--cfg", quickstart, *told).out
    assert "30 images" in out
    assert "text features of 3 classes: 3 prompts now" in out
    first = text_files(tmp_path)
    out = ggeur("embed", "--cfg", quickstart, *told).out
    assert "all were in the cache already" in out
    assert "text features of 3 classes: already in the cache" in out
    told += ["ggeur.text.templates", "['{}, drawn']"]
    out = ggeur("embed", "--cfg", quickstart, *told).out
    assert "all were in the cache already" in out
    assert "3 prompts now" in out
    assert len(text_files(tmp_path) - first) == 1
    assert main(["--cfg", str(quickstart), *told]) == 0
    assert len(text_files(tmp_path)) == 2
