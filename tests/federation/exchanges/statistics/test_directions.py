"""A client with rows of another kind is named, and honest clients are not."""

from __future__ import annotations

import numpy as np
import pytest

from federatedscope_ggeur import FederatedData, run
from federatedscope_ggeur.data import load_data

pytestmark = pytest.mark.slow

ONE_SHOT = {
    "ggeur.closed_form": "lda",
    "ggeur.lda.shrinkage": 0.1,
    "ggeur.init": "random",
    "ggeur.keep": "trained",
}


def digits():
    found = load_data("digits_quickstart@ggeur", "", [0.7, 0, 0.3], 0).domains
    parts = [(d.train.features.numpy(), d.train.labels.numpy()) for d in found]
    site = np.repeat(np.arange(4), [len(y) for _, y in parts])
    return (
        np.concatenate([x for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
        site,
    )


def findings(x, y, site):
    results = run(
        "ggeur_own_embeddings.yaml",
        FederatedData.from_arrays(x, y, site),
        overrides=ONE_SHOT,
    )
    return {one.client: one.problem for one in results.screening.findings}


@pytest.mark.parametrize("kind", ["rotated", "shuffled", "inverted", "as it is"])
def test_rows_of_another_kind(kind):
    x, y, site = digits()
    rng = np.random.default_rng(0)
    change = {
        "rotated": lambda rows: rows @ np.linalg.qr(rng.normal(size=(324, 324)))[0],
        "shuffled": lambda rows: rows[:, rng.permutation(324)],
        "inverted": lambda rows: rows.max() - rows,
        "as it is": lambda rows: rows,
    }[kind]
    x[site == 1] = change(x[site == 1])
    found = findings(x, y, site)
    if kind in ("inverted", "as it is"):
        assert found == {}
    else:
        assert list(found) == [2]
        assert "may be of another encoder" in found[2]
