"""What `import federatedscope_ggeur` offers."""

import ast
import json
from pathlib import Path

import pytest
from own_process import python

import federatedscope_ggeur
from federatedscope_ggeur.extras import all_of

NAMES = sorted(set(federatedscope_ggeur.__all__) - {"__version__"})
OF_EXTRAS = list(all_of("public"))


@pytest.mark.parametrize("name", [*NAMES, *OF_EXTRAS])
def test_every_public_name_is_there(name):
    public = getattr(federatedscope_ggeur, name)
    assert callable(public)
    assert public.__doc__


def test_names_for_tools_and_for_type_checkers_are_the_same():
    assert {*NAMES, *OF_EXTRAS} <= set(dir(federatedscope_ggeur))
    tree = ast.parse(Path(federatedscope_ggeur.__file__).read_text(encoding="utf-8"))
    (checkers,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in checkers.body for alias in node.names}
    homes = {
        name: f"federatedscope_ggeur.{home}"
        for name, home in federatedscope_ggeur._HOMES.items()
    }
    assert typed == homes
    assert sorted(homes) == NAMES


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nowhere'"):
        federatedscope_ggeur.nowhere  # noqa: B018


IMPORT = """\
import json, sys
import federatedscope_ggeur
dir(federatedscope_ggeur)
print(json.dumps(sorted(name.split(".")[0] for name in sys.modules)))
"""


def test_importing_the_package_imports_nothing_heavy():
    loaded = set(json.loads(python("-c", IMPORT).stdout))
    assert not loaded & {"torch", "numpy", "yacs", "matplotlib", "safetensors"}


RUN = """\
import sys
from federatedscope_ggeur import FederatedClassifier, run
print("matplotlib" in sys.modules)
"""


@pytest.mark.slow
def test_nothing_is_imported_for_pictures_before_one_is_drawn():
    assert python("-c", RUN).stdout == "False\n"
