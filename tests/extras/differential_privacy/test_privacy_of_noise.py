"""What a run with noise says of its privacy, word by word.

More tests of cfg_ggeur/privacy_record.py.
"""

import re

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.reporting import privacy_line

DP = "ggeur.privacy.dp."
OWN = ["ggeur.closed_form", "lda", f"{DP}epsilon", "1", f"{DP}rows_per_class", "20"]
BY_SERVER = ["federate.make_global_eval", "True"]  # no client scores anything
CLAIM = "epsilon 1, delta 1e-05, one row of one client more or less, against "
ROWS = "a person with g rows has g times the mu of one row"
NO_LEDGER = "there is no ledger: releases of the same rows are not added up"
CLIENT = "the server and all other clients together; "
CASES = {
    "client": (
        [f"{DP}noise", "client", *BY_SERVER],
        f"{CLAIM}{CLIENT}{ROWS}; {NO_LEDGER}",
        ["each client's statistics with noise"],
    ),
    "server": (
        [f"{DP}noise", "server", *BY_SERVER],
        f"{CLAIM}curious clients and users of the head; the server sees everything "
        f"without noise; {ROWS}; {NO_LEDGER}",
        ["statistics of each client without noise"],
    ),
    "distributed": (
        ["ggeur.privacy.secure_sums", "statistics", *BY_SERVER],
        f"{CLAIM}the server together with the tolerated number of clients; {ROWS}; a "
        "server that makes up keys or clients can take the noise of others away; "
        f"{NO_LEDGER}",
        ["the sum of all clients' statistics with noise"],
    ),
    "with a ledger": (
        [f"{DP}noise", "client", f"{DP}ledger", "spent", *BY_SERVER],
        f"{CLAIM}{CLIENT}{ROWS}",
        ["each client's statistics with noise"],
    ),
    "with scores": (
        [f"{DP}noise", "client", f"{DP}report_scores", "True"],
        f"{CLAIM}{CLIENT}{ROWS}; clients' scores are exact and not covered; "
        f"{NO_LEDGER}",
        [
            "each client's statistics with noise",
            "each client's scores: rows, hits and the sum of their losses",
        ],
    ),
    "by a test seed": (
        [f"{DP}noise", "client", f"{DP}test_seed", "3", *BY_SERVER],
        f"no guarantee, against {CLIENT}not private: the noise is drawn by a test "
        f"seed; {ROWS}; {NO_LEDGER}",
        ["each client's statistics with noise"],
    ),
}


@pytest.mark.parametrize(("settings", "line", "seen"), CASES.values(), ids=CASES)
def test_a_run_with_noise_says_who_learns_what(quickstart, settings, line, seen):
    found = privacy_of(load_config(quickstart, [*OWN, *settings]))
    assert privacy_line(found) == f"privacy: {line}"
    assert found.server_sees == seen
    assert found.clients_see == ["the mean of all rows with noise", "the head"]


def test_a_dry_run_says_the_noise_for_the_rows_that_are_expected(
    config, tmp_path, capsys
):
    path = tmp_path / "small.yaml"
    path.write_text(config("outdir", tmp_path / "exp").dump())
    own = ["ggeur.closed_form", "lda", "ggeur.privacy.dp.epsilon", 4]
    own += ["ggeur.privacy.dp.noise", "client", "federate.make_global_eval", True]

    def said(rows) -> float:
        words = [*own, "ggeur.privacy.dp.rows_per_class", rows]
        assert main(["--cfg", str(path), "--dry-run", *map(str, words)]) == 0
        line = r"the mean of all rows: (\S+) in each"
        return float(re.search(line, capsys.readouterr().out)[1])

    few, many = said(20), said(200)
    assert few == pytest.approx(10 * many, rel=0.1)
    assert few < 1
