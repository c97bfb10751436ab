"""What is unlike all that the others send is named, or put out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_bytes import CLASSES, make_rows
from carrier import _changed, carrier
from hypothesis import example, given
from hypothesis import strategies as st

from federatedscope_ggeur import reporting
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.federation.course.coordinator import Plan
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    Directions,
    Lengths,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.federation.exchanges.training.screening import update_findings
from federatedscope_ggeur.federation.sampling import capped, log_largest_share, shares
from federatedscope_ggeur.federation.screening import (
    ROWS,
    SCREENS,
    Screen,
    beyond,
    declared_findings,
)
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.geometry import Statistics


def upload(k, scale=1.0, shift=0.0) -> StatisticsUpload:
    features, labels = make_rows(30, seed=k)
    held = Statistics.from_embeddings(features * scale + shift, labels, CLASSES)
    return StatisticsUpload(k, "art", held)


START = torch.zeros(4)


def update(k, length=1.0) -> ClientUpdate:
    params = torch.zeros(4)
    params[k % 4] = length
    return ClientUpdate(k, 1, params, 5)


def test_honest_clients_are_not_named():
    assert Lengths().findings([upload(k, 1.0 + k / 4) for k in range(1, 9)]) == {}
    assert update_findings([update(k, float(k)) for k in range(1, 9)], START) == {}
    assert beyond({k: 10.0 * k for k in range(9)}, ROWS, "its weight") == {}
    rows = {k: Declared(10 * k, 0, k, 2.0 ** (k % 3)) for k in range(1, 9)}
    assert declared_findings(rows) == {}


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_columns_in_another_order_agree_with_nobody(scale):
    """However short the rows are, and nobody else is named."""
    centres = torch.randn(12, 40, generator=torch.Generator().manual_seed(0))

    def shuffled(k):
        noise = torch.randn(36, 40, generator=torch.Generator().manual_seed(k))
        rows = scale * (centres.repeat(3, 1) + 0.1 * noise)
        rows = rows.flip(1) if k == 2 else rows
        labels = torch.arange(36) % 12
        return StatisticsUpload(k, "art", Statistics.from_embeddings(rows, labels, 12))

    directions = Directions()
    for k in range(1, 6):
        directions.add(shuffled(k))
    found = directions.findings()
    assert list(found) == [2]
    assert "may be of another encoder" in found[2]


def test_two_clients_tell_nothing():
    assert Lengths().findings([upload(1), upload(2, 1e9)]) == {}
    assert update_findings([update(1), update(2, 1e9)], START) == {}
    assert beyond({1: 1.0, 2: 1e9}, ROWS, "its weight") == {}


@pytest.mark.parametrize(
    ("liar", "what"),
    [
        (upload(9, shift=1e3), "the mean of its class 0 has the norm 2.45e"),
        (upload(9, scale=100.0), "is"),
    ],
)
def test_statistics_far_from_the_others_are_found(liar, what):
    found = Lengths().findings([upload(1), upload(2), liar, upload(3)])
    assert list(found) == [9]
    assert what in found[9]


def test_statistics_are_compared_with_those_of_windows_before():
    lengths = Lengths()
    assert lengths.findings([upload(1)]) == lengths.findings([upload(2)]) == {}
    for k in (9, 8, 7, 6):  # what was put out is no measure for others
        assert list(lengths.findings([upload(k, shift=1e3)])) == [k]


@given(st.lists(st.floats(1e-12, 1e29), min_size=3, max_size=6))
@example([1.0, 1.0, 9.9])
@example([1.0, 1.0, 10.1])
@example([1e20, 1e20, 1e29])
@example([1e25, 1e26, 1e26])
def test_updates_of_all_sizes_are_compared_as_in_float64(lengths):
    found = update_findings([update(k, n) for k, n in enumerate(lengths)], START)
    held = {k: float(torch.tensor(n)) for k, n in enumerate(lengths)}
    assert found == beyond(held, 10.0, "the length of its update")


def test_updates_weights_and_declarations():
    updates = [update(1), update(2, 2.0), update(3, 100.0), update(4, 0.5)]
    assert update_findings(updates, START) == {
        3: "the length of its update is 100, 1e+02 times the median of the other "
        "clients (1)"
    }
    assert list(beyond({1: 100.0, 2: 100.0, 3: 2.0**40}, ROWS, "its weight")) == [3]
    rows = {k: Declared(100, 0, 20, 4.0) for k in (1, 2)}
    for liar in ("train", "val", "test", "norm"):
        honest = {k: replace(d, val=20) for k, d in rows.items()}
        found = declared_findings({**honest, 3: replace(honest[1], **{liar: 10**9})})
        assert list(found) == [3]
        assert liar in found[3]


def test_short_updates_may_differ():
    updates = [update(1, 0.01), update(2, 0.02), update(3, 0.9), update(4, 0.01)]
    assert list(update_findings(updates, torch.zeros(4))) == [3]
    start = torch.full((4,), 2.0)
    moved = [replace(u, params=u.params + start) for u in updates]
    assert update_findings(moved, start) == {}


def test_warn_says_it_once(caplog):
    found = update_findings([update(1), update(2), update(3, 1e6)], START)
    screen = Screen(SCREENS[0])
    for _ in range(5):
        assert screen.refused("update", found) == {}
    (record,) = caplog.records
    assert "client 3: the length of its update" in record.getMessage()
    hint = record.getMessage().partition("; ")[2]
    assert hint == (
        "to leave such answers out, set ggeur.screen: refuse, and ggeur.quorum below "
        "the number of clients"
    )


def far(reply, carrier):
    size = carrier.coordinator.server.schema.num_parameters
    return _changed(reply, carrier, params=torch.full((size,), 1e3))


@pytest.mark.parametrize("mode", SCREENS)
def test_the_course_puts_out_whom_it_refuses(mode, caplog):
    carried = carrier(quorum=2)
    coordinator = carried.coordinator
    coordinator.screen = Screen(mode)
    carried.round0()
    carried.faults["train", 1, 2] = far
    everyone, others = [1, 2, 3, 4], [1, 3, 4]
    (record,) = carried.rounds(1)
    assert record.clients == (others if mode == "refuse" else everyone)
    assert ("client 2: the length of its update" in caplog.text) == (mode != "off")
    assert (2 in carried.membership.conduct.barred) == (mode == "refuse")
    assert Plan(2, 2, False).screen == "warn"


WEIGHTS = st.dictionaries(
    st.integers(1, 50), st.floats(0, 1e12).map(round), min_size=1, max_size=12
)


@given(WEIGHTS, st.floats(0.01, 1.0))
def test_no_share_is_above_the_bound(weights, most):
    cut = capped(weights, most)
    assert cut.keys() == weights.keys()
    held = [k for k, w in weights.items() if w > 0]
    largest = max(shares(cut).values())
    assert largest <= max(most, 1 / max(len(held), 1)) * (1 + 1e-9)
    for k, w in weights.items():
        assert (cut[k] > 0) == (w > 0)
    for k in held:  # the order stays, and who is not cut is as before
        assert all(cut[k] >= cut[j] for j in held if weights[k] >= weights[j])
    if max(shares(weights).values()) <= most:
        assert cut == weights


def test_a_cut_by_hand():
    # t = 0.5 (t + 20), so t = 20.
    assert capped({1: 10, 2: 10, 3: 1000}, 0.5) == {1: 10, 2: 10, 3: 20.0}
    assert capped({1: 10, 2: 10, 3: 1000}, 0.1) == {1: 1.0, 2: 1.0, 3: 1.0}
    assert capped({1: 10, 2: 10, 3: 1000}, 1.0) == {1: 10, 2: 10, 3: 1000}


def test_the_log_names_the_largest_share(caplog):
    caplog.set_level("INFO")
    weights = {1: 10.0, 2: 30.0}
    log_largest_share(weights, ignore_weight=False, most=1.0)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "client 2 has the largest share" in said
    assert "75.0%" in said


@pytest.mark.parametrize("weights", [{}, {4: 7.0}, dict.fromkeys(range(1, 50), 7.0)])
def test_the_log_names_nobody_if_shares_are_equal(weights, caplog):
    caplog.set_level("INFO")
    log_largest_share(weights, ignore_weight=False, most=1.0)
    log_largest_share({1: 10.0, 2: 30.0}, ignore_weight=True, most=1.0)
    log_largest_share({1: 10.0, 2: 30.0}, ignore_weight=False, most=0.5)
    assert not caplog.records


# What screening finds in a whole run, and where the run says it; embedded.


@pytest.fixture
def spoilt(config, embeddings_folder):
    """Configs in which client 3's rows have gone through a function."""

    def spoil(change):
        path = embeddings_folder / "sketch.npz"
        with np.load(path) as file:
            features, labels = file["features"], file["labels"]
        np.savez(path, features=change(features), labels=labels)
        even = ["data.splitter", "iid", "data.splitter_args", []]
        return lambda *settings: config("train.optimizer.lr", 0.1, *even, *settings)

    return spoil


@pytest.fixture
def far_client(spoilt):
    """Configs in which client 3 holds rows that are far longer than the others'."""
    return spoilt(lambda rows: 100 * rows)


def test_what_warn_finds_is_in_the_results_and_below_the_table(far_client, tmp_path):
    results = run(far_client())
    (found,) = results.screening.findings
    assert (found.client, found.about) == (3, "statistics")
    assert "the mean of its class" in found.problem
    assert (found.round, found.rounds, found.refused) == (0, 1, False)
    assert results.screening.blind_to == []
    lines = reporting.results_table(results).splitlines()
    assert f"screening: client 3 (round 0): {found.problem}" in lines
    assert reporting.Results.from_json(results.to_json()).screening == results.screening


@pytest.mark.parametrize("by", [6, 0])
def test_columns_in_another_order_are_named_and_honest_clients_are_not(spoilt, by):
    results = run(spoilt(lambda rows: np.roll(rows, by, axis=1))())
    found = {one.client: one.problem for one in results.screening.findings}
    assert list(found) == ([3] if by else [])
    assert not by or "may be of another encoder" in found[3]


def test_what_is_found_in_several_rounds_is_said_once(far_client):
    results = run(far_client("ggeur.steps", []))
    (found,) = results.screening.findings
    assert (found.client, found.about, found.round, found.rounds) == (3, "update", 1, 2)
    (line,) = reporting.screening_lines(results.screening)
    assert line == f"screening: client 3 (round 1, and 1 later): {found.problem}"


def test_who_is_put_out_is_said_too(far_client):
    results = run(far_client("ggeur.screen", "refuse", "ggeur.quorum", 2))
    (found,) = results.screening.findings
    assert (found.client, found.about, found.refused) == (3, "statistics", True)
    assert "; it was barred" in reporting.results_table(results)


@pytest.mark.parametrize("is_far", [False, True])
def test_nothing_is_said_where_nothing_is_found_or_sought(config, request, is_far):
    load = request.getfixturevalue("far_client") if is_far else config
    results = run(load("ggeur.screen", "off" if is_far else "warn"))
    assert results.screening == reporting.Screening()
    assert "screening" not in reporting.results_table(results)


def test_a_run_that_goes_on_has_what_was_found_before(far_client, tmp_path):
    kept = ["federate.save_to", tmp_path / "checkpoint"]
    run(far_client(*kept, "federate.total_round_num", 1))
    restored = run(far_client("federate.restore_from", tmp_path / "checkpoint"))
    assert restored.screening == run(far_client()).screening
