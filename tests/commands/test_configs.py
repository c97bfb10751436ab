"""``ggeur configs``."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cli import main


def test_configs_lists_and_copies(tmp_path, capsys):
    assert main(["configs"]) == 0
    assert "ggeur_quickstart.yaml" in capsys.readouterr().out
    assert main(["configs", str(tmp_path / "mine")]) == 0
    copied = tmp_path / "mine" / "ggeur_quickstart.yaml"
    assert copied.is_file()
    copied.write_text("changed")
    assert main(["configs", str(tmp_path / "mine")]) == 1
    assert "ggeur_quickstart.yaml" in capsys.readouterr().err
    assert copied.read_text() == "changed"


@pytest.mark.parametrize("below", ["", "mine"])
def test_configs_into_what_is_no_folder(tmp_path, capsys, below):
    target = tmp_path / "taken"
    target.write_text("kept")
    assert main(["configs", str(target / below)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert str(target) in error
    assert target.read_text() == "kept"
