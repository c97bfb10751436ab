"""Text models of plugins that do not fit are refused when they register."""

import pytest

from federatedscope_ggeur import register_text_model
from federatedscope_ggeur.extras.text.base import TextPart
from federatedscope_ggeur.settings import Key, positive

SIDE = (Key("side", 1.0, "A side.", positive),)


@pytest.mark.parametrize(
    ("base", "names", "problem"),
    [
        (object, {}, "'own' must be a subclass of TextPart"),
        (TextPart, {}, "must define build"),
        (
            TextPart,
            {"SETTINGS": SIDE, "build": classmethod(lambda cls, texts: None)},
            r"Own\.build takes \(texts\), but is called",
        ),
    ],
)
def test_what_does_not_fit_is_refused(base, names, problem):
    with pytest.raises(TypeError, match=problem):
        register_text_model("own")(
            type("Own", (base,), {"__module__": __name__, **names})
        )
