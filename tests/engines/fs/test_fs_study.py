"""A study whose runs are FederatedScope's."""

import pytest
from study_on_disk import StudyOnDisk

from federatedscope_ggeur.reporting import Results

pytestmark = pytest.mark.slow


def test_its_runs_have_the_scores_of_ours(federatedscope, tmp_path):
    axes = {"method": {"FedAvg": {"ggeur.steps": []}, "+ GGEUR": {}}}
    study = StudyOnDisk(tmp_path, axes=axes, seeds=[1])
    study.run("--workers", 2)
    study.write({**study.content, "engine": "federatedscope"})
    other = tmp_path / "fs"
    study.run("--workers", 2, out=other)
    for method in ("fedavg", "ggeur"):
        ours, theirs = (
            Results.from_json((out / method / "seed_1" / "results.json").read_text())
            for out in (study.out, other)
        )
        assert theirs.engine == "federatedscope standalone"
        assert theirs.final.accuracy == ours.final.accuracy
    assert "2 of 2 are over" in study.run(out=other)
    assert not list(other.rglob("*.part"))


def test_an_error_there_is_told_in_a_line(federatedscope, tmp_path):
    study = StudyOnDisk(
        tmp_path,
        axes={"method": {"x": {"data.type": "no_such@ggeur"}}},
        seeds=[0],
        engine="federatedscope",
    )
    said = study.run(status=1)
    assert "failed: x / seed 0: " in said
    assert "no_such@ggeur" in said
