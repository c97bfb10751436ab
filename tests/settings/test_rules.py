"""Rules: what each lets through, what it says of the rest, how a value is read.

Tests of settings/keys.py, too.

Parts of plugins that do not fit are refused when they register.
"""

from __future__ import annotations

import math
import re
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
    NOT_SET,
    Key,
    Objection,
    Registry,
    Section,
    below,
    check_returned,
    flatten,
    fraction,
    is_of_plugin,
    key,
    names,
    not_negative,
    one_of,
    place_of,
    positive,
    positive_up_to,
    problems_of,
    steps,
    text,
    whole,
)
from federatedscope_ggeur.settings.keys import number_problem
from federatedscope_ggeur.settings.registry import check_section

NO_NUMBERS = (True, "1", None, [1], {}, math.nan)
RULES = {
    "whole": (whole(2), (2, 2.0, 2**31 - 1), (1, 2.5, 2**31, math.inf, *NO_NUMBERS)),
    "whole at most": (whole(1, maximum=4), (1, 4.0), (0, 5, -1, *NO_NUMBERS)),
    "whole or not set": (whole(1, True), (1, NOT_SET, -1), (0, -2, *NO_NUMBERS)),
    "fraction": (fraction(), (0, 0.5, 1), (-0.1, 1.1, -1, *NO_NUMBERS)),
    "fraction or not set": (fraction(True), (0, 1, NOT_SET), (-0.5, 2, *NO_NUMBERS)),
    "one of": (one_of("a", "b"), ("a", "b"), ("c", "", None, 1)),
    "names": (names("domains"), ([], ["a", "b"], ("a",)), ("a", [1], None, ["a", 2])),
    "below": (below(1), (0, 0.99), (1, -0.1, math.inf, *NO_NUMBERS)),
    "text": (text, ("", "a", "x" * 1000), (1, None, ["a"])),
    "positive": (positive, (1e-300, 5, 1e15), (0, -1, 2e15, math.inf, *NO_NUMBERS)),
    "positive up to": (positive_up_to(9.0), (1, 9), (0, 9.5, -1, *NO_NUMBERS)),
    "positive or not set": (positive_up_to(9.0, True), (9, -1), (0, 10, *NO_NUMBERS)),
    "not negative": (not_negative, (0, 1e15), (-1e-300, 2e15, math.inf, *NO_NUMBERS)),
    "steps": (steps, ([], [1], [2], [1, 2], (1, 2)), ([2, 1], [3], [1, 1], 1, None)),
}
FITS = [(rule, value) for rule, fitting, _ in RULES.values() for value in fitting]
MISFITS = [(rule, value) for rule, _, others in RULES.values() for value in others]


@pytest.mark.parametrize(("rule", "value"), FITS)
def test_what_fits_has_no_problem(rule, value):
    assert rule(value) == ""


@pytest.mark.parametrize(("rule", "value"), MISFITS)
def test_what_does_not_is_told_with_the_value(rule, value):
    problem = rule(value)
    assert problem.startswith("must ")
    assert problem.endswith(f"got {value!r}")


def test_a_text_that_no_message_could_hold():
    assert "must be a text of at most 1000 characters" in text("x" * 1001)


def test_values_are_read_by_the_rule():
    for rule, value, read in (
        (whole(1), 3.0, 3),
        (whole(1, True), NOT_SET, None),
        (whole(0, True), 0.0, 0),
        (fraction(), 1, 1.0),
        (fraction(True), NOT_SET, None),
        (positive, 2.5, 2.5),
        (text, "a", "a"),
        # Refused where settings are checked, and left as it is here.
        (whole(1), 2.5, 2.5),
        (whole(1), "three", "three"),
    ):
        found = Key("name", 1.0, "What it means.", rule).read(value)
        assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    "value", [math.inf, [1.0, math.nan], {"a": 1, "b": [2.0, -math.inf]}, (1e39, 1)]
)
def test_numbers_that_no_setting_takes_are_found_within_values(value):
    assert re.match("must (be finite|lie in)", number_problem(value))
    assert number_problem([1.0, {"a": 2}, "text", True]) == ""


NESTED = {"a": {"b": 1, "c": {"d": []}}, "e": {}}


def test_keys_have_dots():
    assert dict(flatten(NESTED)) == {"a.b": 1, "a.c.d": []}
    assert list(flatten({"a": {"b": {}}})) == []


def test_empty_sections_only_if_asked():
    found = dict(flatten(NESTED, keep_empty=True))
    assert found == {"a.b": 1, "a.c.d": [], "e": {}}


RUN = {"totals": "statistics", "kept": "best", "parts": [1], "most": None, "width": 8}


def said(*objections, wrong=()):
    return list(problems_of(objections, RUN, wrong))


def test_what_is_not_allowed_is_said_with_the_reason():
    allowed = {"kept": ["trained"], "parts": [[], [1]], "width": [0]}
    assert said(Objection("totals", allowed, "which sums")) == [
        "kept: must be trained with totals: statistics, which sums",
        "width: must be 0 with totals: statistics, which sums",
    ]


def test_all_that_is_allowed_is_named_and_no_value_need_be():
    reason = "for a reason"
    assert said(Objection("most", {"kept": ["a", ""]}, reason)) == [
        "kept: must be a or '' with most: -1, for a reason"
    ]
    assert said(Objection("totals", {"width": []}, reason)) == [
        "width: cannot be 8 with totals: statistics, for a reason"
    ]


def test_a_problem_may_have_words_of_its_own():
    assert said(("kept", "takes a second head")) == ["kept: takes a second head"]


def test_nothing_is_said_because_of_a_setting_that_is_wrong_itself():
    objection = Objection("totals", {"kept": ["trained"]}, "which sums")
    assert said(objection, wrong={"totals"}) == []
    assert said(objection, wrong={"kept"}) == said(objection)


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
    message = r"the part \(.*line \d+\) must return an int"
    with pytest.raises(PluginError, match=message):
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


@pytest.mark.parametrize(
    "kind",
    ["method", "closed_form", "exchange", "step", "splitter", "text_model"],
)
def test_a_decorator_without_a_name_is_refused(kind):
    decorate = getattr(federatedscope_ggeur, f"register_{kind}")
    with pytest.raises(TypeError, match=rf'as in @register_{kind}\("my_own"\)'):
        decorate(type("Own", (), {}))


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
            "cannot have a setting called 'step'",
        ),
        (
            {"SETTINGS": (Key("self", 1.0, "A number.", positive),)},
            "cannot have a setting called 'self'",
        ),
        ({"SETTINGS": (STEP, STEP)}, "'tango' has two settings called 'step'"),
    ],
)
def test_settings_are_keys_of_names_of_their_own(parts, names, said):
    with pytest.raises(TypeError, match=said):
        parts.add("tango", part(object, **names))


def test_a_setting_cannot_replace_an_attribute_of_the_base_class(parts):
    Own = part(Method, SETTINGS=(Key("personal", 1.0, "A number.", positive),))
    with pytest.raises(TypeError, match="cannot have a setting called 'personal'"):
        parts.add("tango", Own)
    Own.SETTINGS, Own.step_size = (Key("step_size", 1.0, "A number.", positive),), 2.0
    parts.add("tango", Own)


class WrongRows(Section):
    PREFIX = "tango."
    rows: int = key(0, "How many.", whole(1))


def test_a_default_obeys_its_own_rule(parts):
    for default in (-1.0, None):
        wrong = part(object, SETTINGS=(Key("lr", default, "Rate.", positive),))
        said = "'tango': the default of its setting 'lr' must be above 0"
        with pytest.raises(TypeError, match=said):
            parts.add("tango", wrong)
    with pytest.raises(
        TypeError, match=r"setting 'tango\.rows' must be a whole number"
    ):
        check_section("the step 'tango'", "tango", WrongRows)


def test_the_same_definition_made_again_takes_the_place_of_the_first(parts):
    parts.add("waltz", made(1))
    parts.add("waltz", made(2))
    assert parts["waltz"].number == 2


class Numbers(Section):
    PREFIX = "numbers."

    rows: int | None = key(None, "How many.", whole(1, not_set_allowed=True))
    steps: tuple[int, ...] = key((1, 2), "Which.", steps, name="some.steps")


class MoreNumbers(Numbers):
    own: str = ""


def test_a_section_reads_its_keys_as_attributes():
    assert [k.name for k in MoreNumbers.declared()] == [
        "numbers.rows",
        "numbers.some.steps",
    ]
    assert [k.in_config for k in Numbers.declared()] == [NOT_SET, [1, 2]]
    chosen = {"numbers.rows": 3, "numbers.some.steps": (1,)}
    assert MoreNumbers.of(chosen, own="x") == MoreNumbers(3, (1,), "x")
    given = {"numbers.rows": -1.0, "numbers.some.steps": [2]}
    assert Numbers.read(lambda k: k.read(given[k.name])) == Numbers(None, (2,))
