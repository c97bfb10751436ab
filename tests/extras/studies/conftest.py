"""Studies on disk: one that runs, and one of two methods at two alphas, five seeds."""

from functools import partial

import pytest
from study_on_disk import StudyOnDisk
from written_runs import write_study

from federatedscope_ggeur.extras.studies.study import (
    Axis,
    Failed,
    Point,
    Study,
    Tried,
    Tuned,
)


@pytest.fixture
def make_study(tmp_path):
    """A study file and the command that runs it, given what differs from the usual."""
    return partial(StudyOnDisk, tmp_path)


METHODS, ALPHAS = ["FedAvg", "FedAvg + GGEUR_1 & 50%"], ["0.5", "0.1"]


@pytest.fixture(scope="session")
def study() -> Study:
    rates = [Tried({"lr": 0.1}, 0.75), Tried({"lr": 10.0}, None, "diverged")]
    row = {"method": METHODS[0], "alpha": ALPHAS[1]}
    return Study(
        "small",
        "A small study",
        [Axis("method", METHODS), Axis("alpha", ALPHAS)],
        [1, 2, 3, 4, 5],
        baseline=Point("method", METHODS[0]),
        tuned=[Tuned(row, 1, "val_acc", rates, {"lr": 0.1})],
        failed=[Failed({"method": "FedProx"}, 2, "out of memory")],
    )


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory, study):
    means = {(m, a): 0.4 + 0.2 * i + 0.1 * j
             for i, m in enumerate(METHODS) for j, a in enumerate(ALPHAS)}  # fmt: skip
    return write_study(tmp_path_factory.mktemp("runs") / "study", study, means)
