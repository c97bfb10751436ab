"""A study whose runs are FederatedScope's."""

import pytest
from study_on_disk import SHORT, StudyOnDisk

from federatedscope_ggeur import run
from federatedscope_ggeur.reporting import Results

pytestmark = pytest.mark.slow

OWN = """
from federatedscope_ggeur.methods import METHODS, register_method


@register_method("own_of_a_study")
class Own(METHODS["fedavg"]):
    pass
"""


def test_plugins_are_sought_beside_the_study_first(
    federatedscope, tmp_path, quickstart
):
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "mine.yaml").write_text(quickstart.read_text())
    (tmp_path / "bases" / "own_parts.py").write_text("raise RuntimeError")
    (tmp_path / "own_parts.py").write_text(OWN)
    own = {"ggeur.plugins": ["own_parts"], "ggeur.base_method": "own_of_a_study"}
    study = StudyOnDisk(
        tmp_path, base="bases/mine", settings={**SHORT, **own}, axes={}, seeds=[1],
        engine="federatedscope",
    )  # fmt: skip
    study.run("--workers", 1)
    (found,) = study.numbers().values()
    assert found["config"]["ggeur"]["base_method"] == "own_of_a_study"


def test_its_runs_have_the_scores_of_ours(federatedscope, tmp_path):
    """And an error there is told in a line."""
    wrong = {"data.type": "no_such@ggeur"}
    axes = {"method": {"GGEUR": {}, "wrong": wrong}}
    study = StudyOnDisk(tmp_path, axes=axes, seeds=[1], engine="federatedscope")
    said = study.run("--workers", 2, status=1)
    assert "failed: wrong / seed 1: " in said
    assert "no_such@ggeur" in said
    text = (study.out / "ggeur" / "seed_1" / "results.json").read_text()
    found = Results.from_json(text)
    assert found.engine == "federatedscope standalone"
    ours = run("ggeur_quickstart", overrides={**SHORT, "seed": 1})
    assert found.final.accuracy == ours.final.accuracy
    assert not list((study.out / "ggeur").rglob("*.part"))
    study.write({**study.content, "axes": {"method": {"GGEUR": {}}}})
    assert "1 of 1 runs are finished" in study.told()
