"""Parts whose names are known before their modules are imported."""

import sys
import types

import pytest

from federatedscope_ggeur.settings import Registry


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
