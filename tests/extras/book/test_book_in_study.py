"""A study whose runs write a book."""

from study_on_disk import StudyOnDisk

from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.extras.studies.jobs import Runner
from federatedscope_ggeur.extras.studies.running import StudyRun
from federatedscope_ggeur.extras.studies.study_file import load_study


def test_a_book_in_a_study_forgets_in_the_finished_folder(tmp_path, monkeypatch):
    """The run was in another folder before it was finished."""
    book = {"ggeur.closed_form": "lda", "ggeur.book": "book"}
    study = StudyOnDisk(tmp_path, settings=book, axes={}, seeds=[0])
    monkeypatch.chdir(study.out.parent)
    (job,) = StudyRun(load_study(study.file), study.out).jobs()
    Runner().do(job, lambda *told: None)
    assert (study.out / "seed_0" / "head.safetensors").exists()
    said = Federation.load("book").forget(2).said
    left = {path.name for path in study.out.rglob("*")}
    assert left == {"seed_0", "config.yaml", "cell.json"}
    assert not any("left alone" in line for line in said)
