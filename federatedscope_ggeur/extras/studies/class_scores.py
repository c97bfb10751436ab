"""Counts hits and confusions of classes, for the heads that runs left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur.foreign import (
    check_places,
    downloads_if,
    places_of_data,
)
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import Embeddings, FederatedData
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.errors import DataError, GGEURError, UntrustedError, listed
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.reporting import HEAD_FILE, Results, RoundRecord

from .comparison import FoundRun

# Scores of a run and ours are of the same rows, but summed in another order.
_NEAR = 1e-6
_LISTED = 5
_TestSet = tuple[Embeddings, torch.Tensor]


def class_counts(
    runs: Iterable[FoundRun], trust: bool = False
) -> tuple[dict[Path, np.ndarray], list[str]]:
    """Score the head of each run on its test rows again.

    A client's own model is scored on the client's rows. The run's config says how to
    read the rows. The accuracy of each domain must equal the recorded one. Otherwise
    the rows or the head have changed since the run.

    Parameters
    ----------
    runs : iterable of FoundRun
    trust : bool
        Whether to use files outside the runs' folders, and downloads, that their
        settings name.

    Returns
    -------
    counts : dict from a run's folder to int array of shape [C, C]
        How many test rows of each class (row) were given each class (column).
    notes : list of str
        The runs without counts, each with the reason.

    Raises
    ------
    UntrustedError
        A run names a plugin that is not loaded. Or, without `trust`, it names a place
        outside its folder, or weights that are not on this machine.
    """
    counts: dict[Path, np.ndarray] = {}
    problems: dict[str, list[str]] = {}
    sets = _TestSets()
    for run in runs:
        try:
            counts[run.folder] = _counts(run, sets, trust)
        except UntrustedError:
            raise
        except GGEURError as error:
            reason = str(error).replace(str(run.folder), "its folder")
            problems.setdefault(reason.splitlines()[0], []).append(str(run.folder))
    notes = [
        f"{len(folders)} runs have no counts by class ({listed(folders, _LISTED)}): "
        f"{reason}"
        for reason, folders in problems.items()
    ]
    return counts, notes


class _TestSets:
    """Reads the test rows of runs, by domain, with the client of each row.

    Runs of one seed share their rows, which are read only once.
    """

    def __init__(self):
        self._known: dict[str, dict[str, _TestSet]] = {}

    def of(self, cfg: CfgNode, results: Results) -> dict[str, _TestSet]:
        kept = results.provenance
        if kept is None or kept.data is None:
            return _test_sets(load_federated_data(cfg))
        key = kept.data.sha256
        if key not in self._known:
            self._known[key] = _test_sets(load_federated_data(cfg))
        return self._known[key]


def _test_sets(data: FederatedData) -> dict[str, _TestSet]:
    """The test rows of each domain, with the client number of each row.

    Number 0 stands for the global model: no client holds the row.
    """
    found = {}
    for domain, rows in data.test_sets().items():
        held = [(c.number, len(c.test)) for c in data.clients if c.domain == domain]
        numbers = [torch.full((size,), number) for number, size in held]
        whose = (
            torch.cat(numbers) if numbers else torch.zeros(len(rows), dtype=torch.int64)
        )
        found[domain] = rows, whose
    return found


def _counts(run: FoundRun, sets: _TestSets, trust: bool) -> np.ndarray:
    results = run.results
    has_own = results.final.scored == "clients"
    if not (has_own or (run.folder / HEAD_FILE).is_file()):
        raise DataError(f"the run's folder has no {HEAD_FILE}")
    cfg = load_config(results.config)
    if not trust:
        check_places(run.folder, places_of_data(cfg))
    with downloads_if(trust):
        tests = sets.of(cfg, results)
    dims = {rows.dim for rows, _ in tests.values()}
    left = LeftModels(run.folder)
    models = left.on(dims.pop())
    recorded, size = _record(results), len(results.class_names)
    counts = np.zeros((size, size), dtype=np.int64)
    for domain, (rows, whose) in tests.items():
        if not len(rows):
            continue
        numbers = left.numbers(whose.tolist() if has_own else None, len(rows))
        with torch.no_grad():
            found = models.logits(rows.features, numbers).argmax(dim=1).numpy()
        held = rows.labels.numpy()
        before = None if recorded is None else recorded.accuracy.get(domain)
        if before is not None and abs(float((found == held).mean()) - before) > _NEAR:
            raise DataError(
                f"on '{domain}' the accuracy of its head differs from the recorded "
                "one; the data, or how they are read and embedded, have changed "
                "since"
            )
        np.add.at(counts, (held, found), 1)
    return counts


def _record(results: Results) -> RoundRecord | None:
    """The record of the head that the run left; None if it was not scored."""
    if results.final.head == "calibrated":
        return results.calibrated
    if results.final.head == "closed_form":
        return results.closed_form
    last = results.rounds[-1] if results.rounds else None
    return last if last is not None and last.evaluated else None
