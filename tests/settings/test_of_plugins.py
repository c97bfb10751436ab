"""Parts of plugins that do not fit are refused when they register."""

import sys
import types

import pytest

import federatedscope_ggeur
from federatedscope_ggeur import register_closed_form, register_method, register_reader
from federatedscope_ggeur.errors import ConfigError, PluginError
from federatedscope_ggeur.federation.exchanges import EXCHANGES
from federatedscope_ggeur.methods import METHODS, FedAvg, Method
from federatedscope_ggeur.models.closed_forms import ClosedForm
from federatedscope_ggeur.settings import (
    Key,
    Registry,
    check_returned,
    is_of_plugin,
    place_of,
    positive,
)


def part(base: type, **names) -> type:
    return type("Own", (base,), {"__module__": __name__, **names})


def register(kind: str):
    return getattr(federatedscope_ggeur, f"register_{kind}")("own")


def test_a_class_of_another_kind():
    for kind, base in {
        "method": "Method",
        "augmentation": "Method",
        "closed_form": "ClosedForm",
        "exchange": "Exchange",
    }.items():
        for other in (lambda: None, int):
            with pytest.raises(TypeError, match=f"'own' must be a subclass of {base}"):
                register(kind)(other)
    assert "own" not in {*METHODS, *EXCHANGES}


def test_a_function_of_other_arguments():
    for kind, takes in {
        "reader": "root, splits, seed",
        "image_reader": "root",
        "splitter": "task",
        "encoder": "settings, device",
    }.items():
        said = rf"'own' must be a function of \({takes}\), but takes \(\)"
        with pytest.raises(TypeError, match=said):
            register(kind)(lambda: None)
        with pytest.raises(TypeError, match="must be a function of"):
            register(kind)(3)


def test_a_setting_that_the_function_does_not_take():
    register = register_reader("own", [Key("side", 1.0, "A side.", positive)])
    with pytest.raises(TypeError, match=r"of \(root, splits, seed, side\), but takes"):
        register(lambda root, splits, seed: None)


@pytest.mark.parametrize(
    ("register", "own", "said"),
    [
        (
            register_method,
            part(Method, step=lambda self, params, updates: None),
            r"Own\.step takes \(self, params, updates\), but is called with \(",
        ),
        (
            register_method,
            part(Method, lokal=lambda self, context: None),
            "'own' defines no function of Method, and nothing calls its lokal; did",
        ),
        (register_closed_form, part(ClosedForm), "must define work_out"),
    ],
)
def test_hooks_that_do_not_fit(register, own, said):
    with pytest.raises(TypeError, match=said):
        register("own")(own)


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


# Parts whose names are known before their modules are imported.


class Part:
    SETTINGS = ()


@pytest.fixture
def registry():
    """It expects the part `late` of a module that is not there yet."""
    made = Registry("part", "part")
    made.add("early", Part)
    made.expect({"late": "module_of_a_test"})
    return made


@pytest.fixture
def module(registry, tmp_path, monkeypatch):
    """The module, which registers the part when it is imported."""
    path = tmp_path / "module_of_a_test.py"
    path.write_text(
        "from registry_of_a_test import registry\n"
        "class Late:\n    SETTINGS = ()\n"
        "registry.add('late', Late)\n"
    )
    holder = types.ModuleType("registry_of_a_test")
    holder.registry = registry
    monkeypatch.setitem(sys.modules, "registry_of_a_test", holder)
    monkeypatch.syspath_prepend(tmp_path)
    yield "module_of_a_test"
    sys.modules.pop("module_of_a_test", None)


def test_the_name_is_known_and_nothing_is_imported(registry):
    assert list(registry) == ["early", "late"]
    assert "late" in registry
    assert registry.rule("late") == ""
    assert registry.present() == {"early": Part}
    assert registry.is_expected("late")
    assert not registry.is_expected("early")


def test_who_asks_for_the_part_imports_it(registry, module):
    assert registry.find("late").__module__ == module
    assert list(registry.present()) == ["early", "late"]
    registry.add("late", registry["late"])  # as by an import again


def test_nobody_else_takes_the_name(registry):
    with pytest.raises(ValueError, match="'late' is already registered"):
        registry.add("late", Part)


# Parts of one kind by name; tests of settings/registry.py.


@pytest.fixture
def parts():
    return Registry("dance", "steps.dance", taken=("none",))


def made(value):
    """Another definition of the same name in the same module, as if run again."""

    class Waltz:
        number = value

    return Waltz


def test_parts_are_found_by_name_in_their_order(parts):
    class Tango:
        pass

    waltz = parts.registered("waltz")(made(1))
    assert parts.add("tango", Tango) is Tango
    assert parts.find("waltz") is parts["waltz"] is waltz
    assert list(parts) == ["waltz", "tango"]
    assert len(parts) == 2
    assert Tango.name == "tango"


def test_an_unknown_one_is_refused_with_those_there_are(parts):
    parts.add("waltz", made(1))
    message = r"steps\.dance: no dance is called 'jig'; known: none, waltz"
    with pytest.raises(ConfigError, match=message):
        parts.find("jig")


def test_a_setting_takes_the_names_that_are_registered_by_then(parts):
    rule = parts.rule
    assert not rule("none")
    assert "'waltz'" in rule("waltz")
    parts.add("waltz", made(1))
    assert not rule("waltz")


def test_a_name_is_taken_once(parts):
    class Other:
        pass

    parts.add("waltz", made(1))
    for name in ("waltz", "none"):
        with pytest.raises(ValueError, match=f"dance '{name}' is already registered"):
            parts.add(name, Other)
    assert parts["waltz"].number == 1


STEP = Key("step", 1.0, "Length of a step.", positive)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"SETTINGS": STEP}, "'tango' must have a tuple of Key as SETTINGS"),
        ({"SETTINGS": ("step",)}, "'tango' must have a tuple of Key as SETTINGS"),
        (
            {"SETTINGS": (STEP,), "step": lambda self: None},
            "a setting and a function called 'step'",
        ),
        ({"SETTINGS": (STEP, STEP)}, "'tango' has two settings called 'step'"),
    ],
)
def test_settings_are_keys_of_names_of_their_own(parts, names, said):
    with pytest.raises(TypeError, match=said):
        parts.add("tango", part(object, **names))


def test_the_same_definition_made_again_takes_the_place_of_the_first(parts):
    parts.add("waltz", made(1))
    parts.add("waltz", made(2))
    assert parts["waltz"].number == 2
