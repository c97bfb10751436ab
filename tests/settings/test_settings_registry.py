"""Parts of one kind by name; tests of settings/registry.py."""

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings import Key, Registry, positive


@pytest.fixture
def registry():
    return Registry("dance", "steps.dance", taken=("none",))


def made(value):
    """Another definition of the same name in the same module, as if run again."""

    class Waltz:
        number = value

    return Waltz


def test_parts_are_found_by_name_in_their_order(registry):
    class Tango:
        pass

    waltz = registry.registered("waltz")(made(1))
    assert registry.add("tango", Tango) is Tango
    assert registry.find("waltz") is registry["waltz"] is waltz
    assert list(registry) == ["waltz", "tango"]
    assert len(registry) == 2
    assert Tango.name == "tango"


def test_an_unknown_one_is_refused_with_those_there_are(registry):
    registry.add("waltz", made(1))
    message = r"steps\.dance: no dance is called 'jig'; known: none, waltz"
    with pytest.raises(ConfigError, match=message):
        registry.find("jig")


def test_a_name_is_taken_once(registry):
    class Other:
        pass

    registry.add("waltz", made(1))
    for name in ("waltz", "none"):
        with pytest.raises(ValueError, match=f"dance '{name}' is already registered"):
            registry.add(name, Other)
    assert registry["waltz"].number == 1


@pytest.mark.parametrize(
    "settings", [Key("speed", 1.0, "Speed.", positive), ("speed",)]
)
def test_settings_are_a_tuple_of_keys(registry, settings):
    class Tango:
        SETTINGS = settings

    with pytest.raises(TypeError, match="'tango' must have a tuple of Key as SETTINGS"):
        registry.add("tango", Tango)


def test_a_setting_does_not_hide_a_function(registry):
    class Tango:
        SETTINGS = (Key("step", 1.0, "Length of a step.", positive),)

        def step(self):
            """Does a step."""

    with pytest.raises(TypeError, match="a setting and a function called 'step'"):
        registry.add("tango", Tango)


def test_two_settings_of_one_name_are_refused(registry):
    class Tango:
        SETTINGS = tuple(Key("step", x, "Length of a step.", positive) for x in (1, 2))

    with pytest.raises(TypeError, match="'tango' has two settings called 'step'"):
        registry.add("tango", Tango)


def test_the_same_definition_made_again_takes_the_place_of_the_first(registry):
    registry.add("waltz", made(1))
    registry.add("waltz", made(2))
    assert registry["waltz"].number == 2
