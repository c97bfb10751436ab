"""Parts of plugins that do not fit are refused when they register."""

from __future__ import annotations

import pytest

from federatedscope_ggeur import (
    register_augmentation,
    register_closed_form,
    register_encoder,
    register_exchange,
    register_image_reader,
    register_method,
    register_reader,
    register_splitter,
)
from federatedscope_ggeur.errors import PluginError
from federatedscope_ggeur.federation.exchanges import EXCHANGES
from federatedscope_ggeur.methods import METHODS, FedAvg, Method
from federatedscope_ggeur.models.closed_forms import ClosedForm
from federatedscope_ggeur.settings import (
    Key,
    check_returned,
    is_of_plugin,
    place_of,
    positive,
)


def part(base: type, **names) -> type:
    return type("Own", (base,), {"__module__": __name__, **names})


@pytest.mark.parametrize(
    ("register", "base"),
    [
        (register_method, "Method"),
        (register_augmentation, "Method"),
        (register_closed_form, "ClosedForm"),
        (register_exchange, "Exchange"),
    ],
)
def test_a_class_of_another_kind(register, base):
    for other in (lambda: None, int):
        with pytest.raises(TypeError, match=f"'own' must be a subclass of {base}"):
            register("own")(other)
    assert "own" not in {*METHODS, *EXCHANGES}


@pytest.mark.parametrize(
    ("register", "takes"),
    [
        (register_reader, "root, splits, seed"),
        (register_image_reader, "root"),
        (register_splitter, "task"),
        (register_encoder, "settings, device"),
    ],
)
def test_a_function_of_other_arguments(register, takes):
    said = rf"'own' must be a function of \({takes}\), but takes \(\)"
    with pytest.raises(TypeError, match=said):
        register("own")(lambda: None)
    with pytest.raises(TypeError, match="must be a function of"):
        register("own")(3)


def test_a_setting_that_the_function_does_not_take():
    register = register_reader("own", [Key("side", 1.0, "A side.", positive)])
    with pytest.raises(TypeError, match=r"of \(root, splits, seed, side\), but takes"):
        register(lambda root, splits, seed: None)


def test_a_hook_of_other_arguments():
    own = part(Method, step=lambda self, params, updates: None)
    said = r"Own\.step takes \(self, params, updates\), but is called with \(self, par"
    with pytest.raises(TypeError, match=said):
        register_method("own")(own)


def test_a_name_that_nothing_calls():
    own = part(Method, lokal=lambda self, context: None)
    said = "'own' defines no function of Method, and nothing calls its lokal; did"
    with pytest.raises(TypeError, match=said):
        register_method("own")(own)


def test_a_hook_that_is_missing():
    with pytest.raises(TypeError, match="must define work_out"):
        register_closed_form("own")(part(ClosedForm))


def test_helpers_beside_hooks_are_no_mistake(monkeypatch):
    monkeypatch.setattr(METHODS, "_parts", dict(METHODS))
    own = part(Method, local=lambda self, context: None, half=lambda self: 0.5)
    assert register_method("own")(own) is METHODS["own"]


def test_what_is_of_the_package_is_of_no_plugin():
    assert not is_of_plugin(FedAvg)
    assert is_of_plugin(part(Method))


def test_where_a_part_stands():
    assert place_of(part).startswith(__file__)
    assert place_of(3) == ""


def test_what_a_part_returned():
    assert check_returned("the part", part, 3, int) is None
    with pytest.raises(
        PluginError, match=r"the part \(.*line \d+\) must return an int"
    ):
        check_returned("the part", part, None, int)
