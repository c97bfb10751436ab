"""A study whose runs are FederatedScope's: it starts them in processes of its own."""

import pytest
from study_on_disk import SHORT, StudyOnDisk

from federatedscope_ggeur import run
from federatedscope_ggeur.reporting import Results


@pytest.mark.slow
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
    assert "1 of 1 runs are finished" in study.run()
