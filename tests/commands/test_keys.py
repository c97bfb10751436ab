"""``ggeur keys``."""

from __future__ import annotations

import pytest
from own_process import program

from federatedscope_ggeur.cli import main

MODULE = """\
from federatedscope_ggeur import register_method
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.settings import Key, positive

@register_method("of_my_own")
class OfMyOwn(Method):
    meaning = source = "mine"
    SETTINGS = (Key("rate", 0.25, "How fast it goes.", positive),)
"""


def test_keys_lists_every_setting(capsys):
    assert main(["keys"]) == 0
    assert "ggeur.privacy.min_samples = 5\n" in capsys.readouterr().out


def test_words_search_names_and_meanings(capsys):
    assert main(["keys", "min_samples"]) == 0
    by_name = capsys.readouterr().out
    assert by_name.startswith("ggeur.privacy.min_samples = 5\n    ")
    assert main(["keys", "SHRINKAGE", "leave-one-out"]) == 0
    both = capsys.readouterr().out
    names = [line for line in both.splitlines() if line.startswith("ggeur")]
    assert "ggeur.lda.shrinkage = -1" in names
    assert len(names) < 10
    for line in names:
        assert main(["keys", line.split()[0]]) == 0
        assert line in capsys.readouterr().out


def test_a_word_that_no_key_has(capsys):
    assert main(["keys", "min_sample_number"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no key contains 'min_sample_number'; near it are " in line
    assert "ggeur.privacy.min_samples" in line


def test_a_config_is_read_first(capsys):
    assert main(["keys", "--cfg", "ggeur_quickstart.yaml", "seed", "3"]) == 0
    assert "ggeur.privacy.min_samples = 5\n" in capsys.readouterr().out
    assert main(["keys", "--cfg", "nowhere.yaml"]) == 1
    assert "'nowhere.yaml' does not exist" in capsys.readouterr().err


@pytest.mark.slow
def test_the_keys_of_plugins_are_listed_even_if_the_config_is_wrong(tmp_path):
    (tmp_path / "my_methods.py").write_text(MODULE)
    (tmp_path / "my.yaml").write_text("ggeur: {plugins: [my_methods], nosuch: 1}\n")
    done = program("keys", "--cfg", "my.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ggeur.of_my_own.rate = 0.25\n    How fast it goes.\n" in done.stdout
