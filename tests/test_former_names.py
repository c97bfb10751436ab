"""Documented modules that moved into extras have their former names, too."""

from importlib import import_module

from federatedscope_ggeur.extras import all_of


def test_a_former_name_is_the_module_that_stands_in_its_extra():
    for former, module in all_of("formerly").items():
        found = import_module(f"federatedscope_ggeur.{former}")
        assert found is import_module(module), former
