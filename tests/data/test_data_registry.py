"""`load_data` finds the reader that data.type names."""

from dataclasses import replace

import pytest

from federatedscope_ggeur.data import (
    READERS,
    load_data,
    read_digits_quickstart,
    register_reader,
)
from federatedscope_ggeur.errors import ConfigError, PluginError

SPLITS = [0.7, 0.0, 0.3]


def test_known_readers_are_called(monkeypatch):
    monkeypatch.setattr(READERS, "_parts", {})

    @register_reader("echo")
    def read(root, splits, seed):
        found = read_digits_quickstart(splits, seed)
        return replace(found, encoder=f"{root}, {splits}, {seed}")

    found = load_data("echo@ggeur", "somewhere", SPLITS, 5)
    assert found.encoder == f"somewhere, {SPLITS}, 5"


def test_another_result_than_a_data_set_is_refused(monkeypatch):
    monkeypatch.setattr(READERS, "_parts", {})

    @register_reader("nothing")
    def read(root, splits, seed):
        """Forgets to return what it read."""

    said = r"'nothing@ggeur' \(.*test_data_registry.py, line \d+\) must return a DataS"
    with pytest.raises(PluginError, match=said):
        load_data("nothing@ggeur", "", SPLITS, 0)


@pytest.mark.parametrize(
    "name", ["nothing@ggeur", "embeddings", "embeddings@torchvision"]
)
def test_unknown_type_lists_the_known_ones(name):
    known = r"digits_quickstart@ggeur.*embeddings@ggeur.*pacs@ggeur"
    with pytest.raises(ConfigError, match=rf"data\.type '{name}'.*{known}"):
        load_data(name, "", SPLITS, 0)


def test_splits_are_checked_before_reading():
    with pytest.raises(ConfigError, match=r"data\.splits"):
        load_data("embeddings@ggeur", "/nowhere", [0.8, 0.1], 0)


def test_bundled_digits_need_no_root():
    assert load_data("digits_quickstart@ggeur", "", SPLITS, 0).num_classes == 10
