"""Finding a config by its name or path."""

from __future__ import annotations

from pathlib import Path

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import example_folder, find_config


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["ggeur_pacs.yaml", "ggeur_pacs"])
def test_an_example_by_its_name(name):
    assert find_config(name) == example_folder() / "ggeur_pacs.yaml"


def test_a_file_comes_before_an_example_and_an_example_before_a_folder():
    Path("ggeur_pacs").mkdir()
    assert find_config("ggeur_pacs") == example_folder() / "ggeur_pacs.yaml"
    Path("ggeur_pacs.yaml").touch()
    assert find_config("ggeur_pacs.yaml") == Path("ggeur_pacs.yaml")


@pytest.mark.parametrize(
    "name", ["my.yaml", "no/ggeur_pacs.yaml", "./ggeur_pacs", "", "..", "x" * 5000]
)
def test_what_is_neither_is_named(name):
    with pytest.raises(ConfigError, match="does not exist, and no bundled one"):
        find_config(name)
