"""Finding a config or a study by its name or path."""

from pathlib import Path

import pytest
import yaml

from federatedscope_ggeur.cfg_ggeur.load import default_config
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import (
    example_configs,
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
    said = r"(exist|is a folder), and no bundled.*ggeur configs"
    with pytest.raises(ConfigError, match=rf"(?s){said}") as caught:
        find_config(name)
    assert len(str(caught.value)) < 1500  # a long name is cut


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
    message = r"(exist|folder), and .*bundled ones are .*table7"
    with pytest.raises(ConfigError, match=message):
        find_study(name)


EXAMPLES = example_configs()
#: Templates and quickstarts, which reproduce nothing.
OWN = ("own_embeddings", "quickstart")
#: Those that write their papers' numbers although they are defaults.
WRITTEN_OUT = ("fedclip_", "fedpg_", "fedtpg_", "promptfl_", "zeroshot_")
every_example = pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)


@every_example
def test_a_head_says_what_an_example_is(file):
    head, settings, _ = file.read_text(encoding="utf-8").partition("\nexpname: ")
    assert settings
    wanted = ["# Reproduces: ", "# Data: ", "# Time: "]
    if file.stem != "ggeur_own_images":  # one is to copy it, and to edit it
        wanted.append("# Run: ")
    if file.name.startswith("fedfa_"):
        wanted += ["# Plain baseline: ", "GPU", "# Paper or release"]
    if head.startswith("# GGEUR on "):
        wanted.append('ggeur.steps "[]"')
    if any(name in file.name for name in OWN):
        wanted = []
    assert [word for word in wanted if word not in head] == []


@every_example
def test_an_example_repeats_no_default(file):
    if not file.name.startswith(WRITTEN_OUT):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert list(repeated(content, default_config())) == []


def repeated(content, defaults):
    """The keys of a file's content whose values are the defaults."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from repeated(value, defaults[name])
        else:
            # "1e-2" is a text for YAML, and a number for us and for FederatedScope.
            kind = type(defaults.get(name))
            if (kind(value) if kind is float else value) == defaults.get(name):
                yield name
