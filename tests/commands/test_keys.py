"""``federatedscope-ggeur keys``."""

from __future__ import annotations

from federatedscope_ggeur.cli import main


def test_keys_lists_every_setting(capsys):
    assert main(["keys"]) == 0
    assert "ggeur.privacy.min_samples = 5\n" in capsys.readouterr().out


def test_a_config_is_loaded_first(capsys):
    assert main(["keys", "--cfg", "ggeur_quickstart.yaml", "seed", "3"]) == 0
    assert "ggeur.privacy.min_samples = 5\n" in capsys.readouterr().out
    assert main(["keys", "--cfg", "nowhere.yaml"]) == 1
    assert "'nowhere.yaml' does not exist" in capsys.readouterr().err
