"""study.json and cell.json: there and back, and everything else refused by name."""

import json

import pytest

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.extras.studies.study import (
    Axis,
    Cell,
    Failed,
    Point,
    Study,
    Tried,
    Tuned,
    read_cell,
    read_study,
    to_text,
)

STUDY = Study(
    "table2",
    "Table 2",
    [Axis("method", ["FedAvg", "+ GGEUR"]), Axis("alpha", ["0.5"])],
    [0, 1],
    ["alpha"],
    Point("method", "FedAvg"),
    "table2",
    [Tuned({"alpha": "0.5"}, 0, "val_acc", [Tried({"train.optimizer.lr": 0.1}, 0.5),
           Tried({"train.optimizer.lr": 9.0}, None, "it diverged")],
           {"train.optimizer.lr": 0.1})],
    [Failed({"method": "FedAvg"}, 1, "no data")],
)  # fmt: skip
CELL = Cell("table2", {"method": "FedAvg"}, 1, {"train.optimizer.lr": 0.1})


def test_there_and_back(tmp_path):
    (tmp_path / "study.json").write_text(to_text(STUDY))
    (tmp_path / "cell.json").write_text(to_text(CELL))
    assert read_study(tmp_path) == STUDY
    assert read_cell(tmp_path) == CELL


def test_no_file_is_none(tmp_path):
    assert read_study(tmp_path) is None
    assert read_cell(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "has version None"),
        (
            '{"version": 99}',
            "has version 99, but this federatedscope-ggeur reads version 1;",
        ),
        (json.dumps({**json.loads(to_text(CELL)), "seed": "1"}), "seed: expected int"),
        (json.dumps({**json.loads(to_text(CELL)), "more": 1}), "unknown fields: more"),
    ],
)
def test_other_files_are_named(tmp_path, text, message):
    (tmp_path / "cell.json").write_text(text)
    with pytest.raises(DataError, match=message) as error:
        read_cell(tmp_path)
    assert "cell.json" in str(error.value)
