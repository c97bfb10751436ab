"""Six whole runs on every engine: the head and the numbers are those of the embedded
engine, to the bit. What else a run may be made of is tested on that engine alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from digits_network import digits_words
from engines_under_test import ENGINES, Embedded
from own_scores import check_own_score
from private_words import LDA, NOISE, SUMS

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.extras.differential_privacy.ledger import (
    ledger_path,
    read_ledger,
)

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "flower.md"
IID = ("data.splitter", "iid", "data.splitter_args", "[]")
SUMMED = (*LDA, *SUMS)
NOISY = (
    *(*LDA, *NOISE),
    *("ggeur.privacy.dp.test_seed", 1, "ggeur.privacy.dp.epsilon_total", 8),
)
AUTO = ("ggeur.closed_form", "auto", *IID, "ggeur.privacy.min_samples", 2)
#: Those of Flower are the rows of the docs' table, but for the network.
RUNS = {
    "GGEUR, the quickstart": None,
    "SCAFFOLD": ("ggeur.base_method", "scaffold"),
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
        if run == "GGEUR, the quickstart":
            return quickstart, rounds, 4
        if run == "a network":
            return quickstart, digits_words(tmp_path / "cache"), 4
        more = ["ggeur.privacy.dp.ledger", str(ledger)] if RUNS[run] is NOISY else []
        path = tmp_path / "run.yaml"
        path.write_text(config(*RUNS[run], *rounds, *more).dump())
        return path, more, 3

    return settings


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
def test_the_same_bits_as_embedded(engine, settings_of, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Embedded(tmp_path).begin(*settings_of(run, tmp_path / "spent 0"))
    wanted = here.end()
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


def test_the_page_has_these_runs():
    """With the contract's, which is FedAvg without augmentation."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line]
    told = {row.split("|")[1].strip() for row in rows if row.endswith("| equal |")}
    assert told - {"a network"} == {*RUNS, "FedAvg without augmentation"} - {
        "a network"
    }
