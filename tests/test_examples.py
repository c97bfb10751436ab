"""Finding a config or a study by its name or path."""

from __future__ import annotations

from pathlib import Path

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import (
    example_folder,
    find_config,
    find_study,
    study_folder,
)


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
    with pytest.raises(ConfigError, match=r"(exist|is a folder), and no bundled"):
        find_config(name)


def test_a_folder_in_place_of_a_file_is_named():
    Path("mine").mkdir()
    for find in (find_config, find_study):
        with pytest.raises(ConfigError, match="file 'mine' is a folder, and no"):
            find("mine")


@pytest.mark.parametrize("name", ["table7.yaml", "table7"])
def test_a_study_by_its_name(name):
    assert find_study(name) == study_folder() / "table7.yaml"
    Path("table7.yaml").touch()
    assert find_study("table7.yaml") == Path("table7.yaml")


@pytest.mark.parametrize("name", ["table0", "no/table7.yaml", "ggeur_pacs", "", "."])
def test_what_is_no_study_is_named_with_those_there_are(name):
    with pytest.raises(
        ConfigError, match=r"(exist|folder), and .*bundled ones are .*table7"
    ):
        find_study(name)
