"""What screening finds in a whole run, and where the run says it; embedded."""

import numpy as np
import pytest

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import (
    Results,
    Screening,
    results_table,
    screening_lines,
)


@pytest.fixture
def far(config, embeddings_folder):
    """A config in which client 3 holds rows that are far longer than the others'."""
    path = embeddings_folder / "sketch.npz"
    with np.load(path) as file:
        features, labels = file["features"], file["labels"]
    np.savez(path, features=100 * features, labels=labels)

    def load(*settings):
        even = ["data.splitter", "iid", "data.splitter_args", []]
        return config("train.optimizer.lr", 0.1, *even, *settings)

    return load


def finished(cfg) -> Results:
    return Run(cfg).follow(lambda record: None)


def test_what_warn_finds_is_in_the_results_and_below_the_table(far, tmp_path):
    results = finished(far())
    (found,) = results.screening.findings
    assert (found.client, found.about) == (3, "statistics")
    assert "the mean of its class" in found.problem
    assert (found.round, found.rounds, found.refused) == (0, 1, False)
    assert results.screening.blind_to == []
    lines = results_table(results).splitlines()
    assert f"screening: client 3 (round 0): {found.problem}" in lines
    assert Results.from_json(results.to_json()).screening == results.screening


def test_what_is_found_in_several_rounds_is_said_once(far):
    results = finished(far("ggeur.steps", []))
    (found,) = results.screening.findings
    assert (found.client, found.about, found.round, found.rounds) == (3, "update", 1, 2)
    (line,) = screening_lines(results.screening)
    assert line == f"screening: client 3 (round 1, and 1 later): {found.problem}"


def test_who_is_put_out_is_said_too(far):
    results = finished(far("ggeur.screen", "refuse", "ggeur.quorum", 2))
    (found,) = results.screening.findings
    assert (found.client, found.about, found.refused) == (3, "statistics", True)
    assert "; it was barred" in results_table(results)


@pytest.mark.parametrize("spoilt", [False, True])
def test_nothing_is_said_where_nothing_is_found_or_sought(config, request, spoilt):
    load = request.getfixturevalue("far") if spoilt else config
    results = finished(load("ggeur.screen", "off" if spoilt else "warn"))
    assert results.screening == Screening()
    assert "screening" not in results_table(results)


@pytest.mark.slow
def test_a_run_that_goes_on_has_what_was_found_before(far, tmp_path):
    kept = ["federate.save_to", tmp_path / "checkpoint"]
    finished(far(*kept, "federate.total_round_num", 1))
    restored = finished(far("federate.restore_from", tmp_path / "checkpoint"))
    assert restored.screening == finished(far()).screening
