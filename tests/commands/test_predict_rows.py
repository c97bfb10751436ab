"""``predict`` and `Predictor` on embeddings: files of rows, and arrays."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
from written_runs import edited

from federatedscope_ggeur import FederatedClassifier, Predictor
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.reporting import read_results

CLASSES = ("cat", "dog", "emu")


def rows(n, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    features = 2 * np.eye(3, 5)[labels] + rng.normal(size=(n, 5))
    return {"features": features, "labels": np.array(CLASSES)[labels]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two domains with test rows of their own, and runs on them."""
    tmp_path = tmp_path_factory.mktemp("rows")
    for seed, domain in enumerate(("day", "night")):
        (tmp_path / "data" / domain).mkdir(parents=True)
        for place, (split, n) in enumerate((("train", 60), ("test", 37))):
            path = tmp_path / "data" / domain / f"{split}.npz"
            np.savez(path, **rows(n, 10 * seed + place))
    return tmp_path


def train(folder, *settings):
    """The folder of the run with these settings, which is made once."""
    name = "".join(filter(str.isalnum, f"run{settings}"))
    if not (folder / name).exists():
        words = ["--cfg", "ggeur_own_embeddings.yaml", "data.root", folder / "data"]
        words += ["outdir", folder, "expname", name, *settings]
        assert main([*map(str, words)]) == 0
    return folder / name


ONE_SHOT = ["ggeur.init", "random", "ggeur.keep", "trained"]
METHODS = {
    "one-shot": [],
    "mixture": [*ONE_SHOT, "ggeur.closed_form", "mixture"],
    "transformed": ["data.transform", "['l2']"],
    "trained": [
        "ggeur.closed_form", "none", "ggeur.init", "random", "ggeur.keep", "trained",
        "ggeur.steps", "[]", "ggeur.space", "standard",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_test_rows_have_the_runs_own_accuracy(folder, predict, method):
    run = train(folder, *METHODS[method])
    results = read_results(run)
    left = results.rounds[-1] if results.rounds else results.closed_form
    left = results.calibrated or left
    paths = [folder / "data" / d / "test.npz" for d in ("day", "night")]
    lines = predict(run, *paths).out.splitlines()
    assert len(lines) == 2 * 37 + 2
    assert lines[0].startswith(f"{paths[0]}[0]: ")
    for domain, path, line in zip(("day", "night"), paths, lines[-2:]):
        right = round(37 * left.accuracy[domain])
        share = left.accuracy[domain]
        assert line == f"{path}: accuracy {share:.2%}, {right} of 37 rows"
        held = np.load(path)
        found = Predictor(run).predict_proba(held["features"]).argmax(axis=1)
        hits = np.array(CLASSES)[found] == held["labels"]
        assert abs(hits.mean() - left.accuracy[domain]) < 1e-12


@pytest.mark.slow
def test_csv_and_json_of_csv_rows(folder, predict):
    run, held = train(folder), rows(9, 3)
    path = folder / "rows.csv"
    lines = [["a", "b", "label", "c", "d", "e"]]
    for x, label in zip(held["features"].tolist(), held["labels"]):
        lines.append([*x[:2], label, *x[2:]])
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(lines)
    np.savez(folder / "rows.npz", **held)
    out, err = predict(run, path, "--csv", "--top", 2)
    read = list(csv.DictReader(io.StringIO(out)))
    assert len(read) == 18
    assert read[1]["image"] == f"{path}[0]"
    assert read[1]["rank"] == "2"
    assert "accuracy" in err
    there = json.loads(predict(run, folder / "rows.npz", "--json", "--top", 2).out)
    assert [len(one["classes"]) for one in there] == [2] * 9
    shares = [float(row["probability"]) for row in read]
    assert shares == [c["probability"] for one in there for c in one["classes"]]


@pytest.mark.parametrize("form", ["lda", "fisher"])
def test_a_folder_of_an_older_release_opens(tmp_path, form):
    """Schema 10; settings and a kind of head that there are no more."""
    held = rows(60, 4)
    classifier = FederatedClassifier("lda").fit(held["features"], held["labels"])
    new, old = tmp_path / "new", tmp_path / "old"
    for folder in (new, old):
        classifier.save(folder)
    with edited(old) as said:
        said["schema_version"] = 10
        del said["given"]
        for scored in (said["final"], said["round0"]["closed_form"]):
            (scored["probabilities"] or {}).pop("absent", None)
        ggeur = said["config"]["ggeur"]
        ggeur["closed_form"] = form
        ggeur["encoder"]["hash_files"] = False
    found = [Predictor(run).predict_proba(held["features"]) for run in (new, old)]
    assert np.array_equal(*found)
    # Such a folder does not say how wide its rows are; the head does.
    with pytest.raises(DataError, match="takes rows of 5 columns, not 3"):
        Predictor(old).predict_proba(held["features"][:, :3])


def test_a_head_of_an_older_release_asks_what_labels_are(tmp_path, predict):
    """Its results do not say how labels were given. Where they fit one way alone, that
    is taken: tests/data/test_rows.py."""
    features, labels = rows(60, 0)["features"], np.arange(60) % 3 + 1
    FederatedClassifier("lda").fit(features, labels).save(tmp_path / "head")
    with edited(tmp_path / "head") as said:
        del said["given"]
    two = labels < 3  # 1 and 2 are names and positions
    np.savez(tmp_path / "both.npz", features=features[two], labels=labels[two])
    both = tmp_path / "head", tmp_path / "both.npz"
    assert "--labels names or --labels positions" in predict(*both, status=1).err
    predict(*both, "--labels", "names")


def test_columns_called_label_and_files_of_other_kinds(tmp_path, predict):
    held = rows(60, 0)
    frame = pandas.DataFrame(held["features"], columns=["a", "label", "b", "c", "d"])
    FederatedClassifier("lda").fit(frame, held["labels"]).save(tmp_path / "head")
    frame.to_csv(tmp_path / "rows.CSV", index=False)
    frame.to_csv(tmp_path / "rows.tsv", index=False, sep="\t")
    found = predict(tmp_path / "head", tmp_path / "rows.CSV").out
    assert len(found.splitlines()) == 60
    said = predict(tmp_path / "head", tmp_path / "rows.tsv", status=1).err
    assert "rows.tsv' is read as an image" in said
    assert "name files of embeddings (.npz, .npy or .csv)" in said


@pytest.mark.slow
def test_rows_in_npy(folder, predict):
    run, held = train(folder), rows(9, 3)
    np.savez(folder / "a.npz", features=held["features"])
    np.save(folder / "a.npy", held["features"])
    found = []
    for name in ("a.npz", "a.npy"):
        found.append(predict(run, folder / name, "--csv").out.replace(name, ""))
    assert found[0] == found[1]
    np.save(folder / "b.npy", np.array([{}]), allow_pickle=True)
    (folder / "b.csv").write_text("1,2,3\n")
    for name, problem in {
        "b.npy": "b.npy: the file is no npy array",
        "b.csv": "takes rows of 5 columns, not 3",
        "none.npy": "none.npy: cannot read the file: No such file",
    }.items():
        (line,) = predict(run, folder / name, status=1).err.splitlines()
        assert problem in line


@pytest.mark.slow
def test_a_head_opens_without_this_package(folder, monkeypatch):
    run = train(folder, *ONE_SHOT, "ggeur.closed_form", "lda")
    held = rows(20, 5)["features"].astype("float32")
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    part = text.partition("A head opens without this package")[2]
    snippet = re.findall(r"```python\n(.*?)```", part, re.DOTALL)[0]
    monkeypatch.chdir(run)
    known = {"X": held}
    exec(snippet, known)
    found = np.asarray(known["probabilities"].tolist())
    np.testing.assert_allclose(found, Predictor(run).predict_proba(held), atol=1e-6)


@pytest.mark.slow
def test_few_rows_are_flagged_of_a_head_that_is_nearly_always_right(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 1200)
    x = 4 * np.eye(4, 8)[y] + rng.normal(size=(1200, 8))
    settings = {"ggeur.confidences": True}
    made = FederatedClassifier("lda", settings=settings)
    made.fit(x[:800], y[:800], np.arange(800) % 4).save(tmp_path / "head")
    predictor = Predictor(tmp_path / "head")
    sure = predictor.predict_proba(x[800:]).max(axis=1)
    assert (made.predict(x[800:]) == y[800:]).mean() > 0.98
    for quantile in (0.01, 0.05, 0.2):
        share = (sure < predictor.confidence_at(quantile)).mean()
        assert abs(share - quantile) < 0.06
