"""Five whole runs on every engine: the head and the numbers are those of the embedded
engine, to the bit. What else a run may be made of is tested on that engine alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
from digits_network import digits_words
from engines_under_test import ENGINES, Embedded
from own_scores import check_own_score
from private_words import LDA, NOISE, SUMS

from federatedscope_ggeur import FederatedClassifier, FederatedData, Predictor, run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import load_data
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.extras.differential_privacy.ledger import (
    ledger_path,
    read_ledger,
)
from federatedscope_ggeur.models.vectors import to_vector

pytestmark = pytest.mark.slow

IID = ("data.splitter", "iid", "data.splitter_args", "[]")
SUMMED = (*LDA, *SUMS)
NOISY = (
    *(*LDA, *NOISE),
    *("ggeur.privacy.dp.test_seed", 1, "ggeur.privacy.dp.epsilon_total", 8),
)
AUTO = (
    *("ggeur.closed_form", "auto", *IID, "ggeur.privacy.min_samples", 2),
    *("data.transform", ["l2"]),
)
RUNS = {
    "GGEUR with SCAFFOLD": ("ggeur.base_method", "scaffold"),
    "one-shot head, chosen by leave-one-out": AUTO,
    "one-shot head from secure sums": SUMMED,
    "one-shot head under differential privacy, with seeded noise": NOISY,
    "a network": (),
}


@pytest.fixture
def settings_of(config, quickstart, tmp_path):
    """The file and settings of a run, and how many clients it has."""

    def settings(run: str, ledger: Path):
        rounds = ["federate.total_round_num", 2]
        if run == "a network":
            return quickstart, digits_words(tmp_path / "cache"), 4
        more = ["ggeur.privacy.dp.ledger", str(ledger)] if RUNS[run] is NOISY else []
        path = tmp_path / "run.yaml"
        path.write_text(config(*RUNS[run], *rounds, *more).dump())
        return path, more, 3

    return settings


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """What a run leaves on the embedded engine, which is worked out once."""
    found = {}

    def of(run, settings_of):
        if run not in found:
            place = tmp_path_factory.mktemp("embedded")
            found[run] = Embedded(place).begin(*settings_of(run, place / "spent")).end()
        return found[run]

    return of


@pytest.mark.parametrize(
    ("engine", "run"),
    [
        (engine, run)
        for engine in ENGINES
        for run, settings in RUNS.items()
        # A folder refuses them: tests/engines/sites/test_folder_runs.py.
        if engine != "embedded"
        and (engine != "folder" or settings not in (SUMMED, NOISY))
    ],
    indirect=["engine"],
)
def test_the_same_bits_as_embedded(
    engine, embedded, settings_of, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    wanted = embedded(run, settings_of)
    path, settings, clients = settings_of(run, tmp_path / "spent")
    done = engine.begin(path, settings, clients).end()
    assert all(done.ended.values())
    assert done.head == wanted.head
    assert done.numbers == wanted.numbers
    if RUNS[run] is NOISY:
        for k in range(1, clients + 1):
            spent, _ = read_ledger(ledger_path(str(tmp_path / "spent"), k))
            assert len(spent.entries) == 1
    held = load_federated_data(load_config(path, settings)).clients
    for k, site in done.sites.items():
        assert (site / "head.safetensors").read_bytes() == done.head
        if run != "a network":
            check_own_score(site, held[k - 1])


# The same rows give the same head and predictions at every door, to the bit.


CONFIG = "ggeur_own_embeddings.yaml"
HEAD = {
    "ggeur.closed_form": "lda",
    "ggeur.lda.shrinkage": 0.1,
    "ggeur.init": "random",
    "ggeur.keep": "trained",
    "ggeur.privacy.min_samples": 2,
}
KINDS = {
    "numbers from 0": lambda y: y,
    "numbers from 1": lambda y: y + 1,
    "numbers from 3 to 12": lambda y: y + 3,
    "texts of numbers": lambda y: (y + 3).astype(str),
    "names": lambda y: np.array([f"class {c}" for c in "zyxwvutsrq"])[y],
    "truth values": lambda y: y > 4,
}


class Data:
    """Some rows of bundled data, with labels of one kind, and their clients."""

    def __init__(self, kind: str, folder: Path, each: int = 40):
        found = load_data("digits_quickstart@ggeur", "", [0.7, 0, 0.3], 0).domains
        parts = [(d.train.features[:each], d.train.labels[:each]) for d in found]
        self.x = np.concatenate([x[:, ::9].numpy() for x, _ in parts])
        numbers = np.concatenate([y.numpy() for _, y in parts])
        self.y, self.site = KINDS[kind](numbers), np.repeat(np.arange(4), each)
        self.titles = [f"column {number}" for number in range(self.x.shape[1])]
        self.folder = folder
        self.test = np.arange(len(self.x)) % 4 == 0

    def files(self) -> Path:
        for site in range(4):
            place = self.folder / "data" / f"site {site}"
            place.mkdir(parents=True, exist_ok=True)
            for name, mask in (("train", ~self.test), ("test", self.test)):
                mine = mask & (self.site == site)
                np.savez(place / name, features=self.x[mine], labels=self.y[mine])
        return self.folder / "data"

    def csv(self, mask=slice(None), order=1) -> Path:
        frame = pandas.DataFrame(self.x[mask], columns=self.titles)
        frame = frame[self.titles[::order]]
        frame.insert(3, "label", self.y[mask])
        frame.to_csv(self.folder / "rows.csv", index=False, float_format="%.9g")
        return self.folder / "rows.csv"

    def arrays(self, features=None) -> FederatedData:
        rows = self.x if features is None else features
        domains = [f"site {site}" for site in self.site]
        return FederatedData.from_arrays(
            rows, self.y, self.site, domains, test=self.test
        )

    def settings(self, transform: str) -> dict:
        listed = [] if transform == "none" else [transform]
        return {**HEAD, "data.transform": listed}


def heads(data: Data, transform: str):
    """The models of all doors in this process, and their predictions of all rows."""
    cfg, frame = data.settings(transform), pandas.DataFrame(data.x, columns=data.titles)
    doors = {
        "arrays": run(CONFIG, data.arrays(), overrides=cfg),
        "data frame": run(CONFIG, data.arrays(frame), overrides=cfg),
        "folder": run(CONFIG, overrides={**cfg, "data.root": str(data.files())}),
    }
    mine = ~data.test
    made = FederatedClassifier("lda", settings=cfg).fit(
        frame[mine], data.y[mine], data.site[mine]
    )
    return {**doors, "estimator": made.results_}, made


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        *((kind, "none") for kind in KINDS),
        *(("numbers from 0", name) for name in ("l2", "sqrt_l2", "lift")),
    ],
)
def test_every_door_gives_one_head(kind, transform, tmp_path, predict):
    """Whatever the labels are called. Rows are transformed once."""
    data = Data(kind, tmp_path, 24)
    found, made = heads(data, transform)
    first = found["arrays"]
    wanted = first.predict_proba(data.x)
    for results in found.values():
        assert results.class_names == first.class_names
        assert np.array_equal(to_vector(results.model), to_vector(first.model))
        assert np.array_equal(results.predict_proba(data.x), wanted)
    made.save(tmp_path / "head")
    there = Predictor(tmp_path / "head").predict_proba(data.x)
    assert np.array_equal(there, wanted)
    hits = made.predict(pandas.DataFrame(data.x, columns=data.titles)) == data.y
    np.savez(tmp_path / "rows.npz", features=data.x, labels=data.y)
    for path in (tmp_path / "rows.npz", data.csv(), data.csv(order=-1)):
        said = predict(tmp_path / "head", path).out.splitlines()[-1]
        assert said.endswith(f"{hits.sum()} of {len(hits)} rows")


@pytest.mark.parametrize(
    ("kind", "transform"), [("numbers from 1", "none"), ("names", "sqrt_l2")]
)
def test_every_way_into_a_book_gives_one_head(kind, transform, tmp_path):
    data = Data(kind, tmp_path)
    settings = {**data.settings(transform), "data.root": str(data.files())}
    settings |= {"ggeur.book": str(tmp_path / "book"), "outdir": str(tmp_path)}
    words = [str(part) for pair in settings.items() for part in pair]
    assert main(["--cfg", CONFIG, *words]) == 0
    book = Federation.load(tmp_path / "book")
    wanted = to_vector(book.head().model)
    mine = (data.site == 1) & ~data.test
    np.savez(tmp_path / "rows.npz", features=data.x[mine], labels=data.y[mine])
    for path in (data.csv(mine), tmp_path / "rows.npz", None):
        assert main(["update", str(book.path), "--leave", "2"]) == 0
        rows = [] if path is None else ["--rows", str(path)]
        assert main(["update", str(book.path), "--join", "2", *rows]) == 0
        again = Federation.load(book.path)
        assert np.array_equal(to_vector(again.head().model), wanted)
    again.leave(2)
    again.join(2, data.x[mine], data.y[mine])
    assert np.array_equal(to_vector(again.head().model), wanted)
