"""The share of domain shifts that goes with the class: the plain fit, its extremes."""

from dataclasses import replace

import closed_form_oracle as oracle
import numpy as np
import pytest
from closed_form_federations import components_of

from federatedscope_ggeur.models.closed_forms.auto import (
    LARGER_PART,
    Automatic,
    confounded_share,
)

CLASSES = 4


def share_of(rows, labels, clients, domains):
    return confounded_share(components_of(rows, labels, clients, CLASSES, domains))


def plain_share(rows, labels, domains):
    """By least squares on dummies of class and domain, a row of the data each."""
    seen, places = oracle.seen(labels), oracle.seen(domains)
    of_class = np.array([labels == c for c in seen], dtype=float).T
    of_domain = np.array([domains == d for d in places], dtype=float).T
    design = np.hstack([of_class, of_domain])
    effects = np.linalg.lstsq(design, rows, rcond=None)[0][len(seen) :]
    shift = of_domain @ (effects - effects.mean(axis=0))
    shift -= shift.mean(axis=0)
    of_its_class = of_class @ np.linalg.lstsq(of_class, shift, rcond=None)[0]
    return (of_its_class**2).sum() / (shift**2).sum()


def dealt(table):
    """The class and the domain of each of `table` [C, d] rows."""
    classes, places = np.indices(table.shape)
    return (np.repeat(of.ravel(), table.ravel()) for of in (classes, places))


def shifted(seed, table, dim=5, apart=4.0, noise=1.0):
    """`table` [C, d] of rows of each class in each domain, two clients a domain."""
    rng = np.random.default_rng(seed)
    labels, domains = dealt(table)
    clients = 2 * domains + 1 + rng.integers(2, size=len(domains))
    rows = rng.normal(size=(table.shape[0], dim))[labels] * 3
    rows += apart * rng.normal(size=(table.shape[1], dim))[domains]
    return rows + noise * rng.normal(size=rows.shape), labels, clients, domains


EVEN = np.full((CLASSES, 3), 30)
MOSTLY_ONE = np.array([[60, 6, 6], [6, 60, 6], [6, 6, 60], [60, 6, 6]])
HARDLY_COMMON = np.array([[80, 0, 0], [6, 80, 0], [0, 6, 80], [80, 0, 0]])
DISJOINT = np.array([[40, 0], [40, 0], [0, 40], [0, 40]])


@pytest.mark.parametrize("table", [EVEN, MOSTLY_ONE, HARDLY_COMMON], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_plain_fit(table, seed):
    rows, labels, clients, domains = shifted(seed, table)
    parts = components_of(rows, labels, clients, CLASSES, domains)
    found = confounded_share(parts)
    assert found == pytest.approx(plain_share(rows, labels, domains), abs=1e-9)
    means_alone = replace(parts, scatter=None)
    assert confounded_share(means_alone) == pytest.approx(found, abs=1e-9)


def test_it_rises_with_how_much_of_a_class_is_in_one_domain():
    shares = [
        share_of(*shifted(0, table)) for table in (EVEN, MOSTLY_ONE, HARDLY_COMMON)
    ]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0, abs=1e-9)
    assert shares[1] > LARGER_PART / 2
    assert shares[2] > LARGER_PART


def test_without_common_classes_it_is_all_and_of_one_domain_none():
    assert share_of(*shifted(0, DISJOINT)) == 1.0
    assert share_of(*shifted(0, MOSTLY_ONE[:, :1])) == 0.0


#: Only the first two domains have a class in common.
HALF_LINKED = np.array([[80, 0, 0], [6, 80, 0], [0, 0, 60], [0, 0, 60]])


def test_where_one_domain_has_classes_of_its_own_the_others_may_tell():
    rows, labels, clients, domains = shifted(0, HALF_LINKED)
    found, two = share_of(rows, labels, clients, domains), domains < 2
    alone = plain_share(rows[two], labels[two], domains[two])
    # One of two differences between domains is known, and the other lies in classes.
    assert found == pytest.approx((alone + 1) / 2, abs=1e-9)
    assert share_of(*shifted(0, HALF_LINKED, dim=50, apart=0.0)) == 0.0


@pytest.mark.parametrize(
    ("table", "sent"), [(EVEN, 3 * CLASSES), (HARDLY_COMMON, CLASSES)], ids=str
)
def test_clients_of_one_domain_get_components_of_clients_only_if_these_can_help(
    table, sent
):
    """They cannot where labels and clients are confounded, or clients too many."""
    rows, labels, clients, domains = shifted(0, table)
    by_domain = components_of(rows, labels, clients, CLASSES, domains)
    assert len(Automatic().to_leave_out(by_domain).counts) == (table > 0).sum()
    parts = components_of(rows, labels, domains, CLASSES, np.zeros_like(domains))
    assert len(Automatic().to_leave_out(parts).counts) == sent
    many = replace(parts, counts=parts.counts * 10**9)
    assert len(Automatic().to_leave_out(many).counts) == CLASSES


def test_of_domains_that_do_not_differ_it_is_none():
    assert share_of(*shifted(0, HARDLY_COMMON, dim=50, apart=0.0)) == 0.0
    assert share_of(*shifted(0, HARDLY_COMMON, dim=50, apart=1.0)) > LARGER_PART


def histograms(seed, table, shift, dim=800, telling=20):
    """Counts in `dim` bins, of which `telling` depend on the class, others on the
    domain, and all the rest on neither."""
    rng = np.random.default_rng(seed)
    labels, domains = dealt(table)
    of_class, of_domain = np.zeros((len(table), dim)), np.zeros((table.shape[1], dim))
    of_class[:, :telling] = rng.normal(size=(len(table), telling))
    ours = slice(telling, 2 * telling)
    of_domain[:, ours] = shift * rng.normal(size=(table.shape[1], telling))
    expected = rng.gamma(0.5, 0.15, size=dim) * np.exp(of_class[labels])
    rows = rng.poisson(expected * np.exp(of_domain[domains])).astype(float)
    return rows, labels, domains + 1, domains


#: Each class in some domains only.
SOME = np.array([[150, 10, 0], [0, 150, 10], [10, 0, 150], [150, 10, 0]])


@pytest.mark.parametrize("seed", [0, 2])
def test_many_dimensions_of_noise_do_not_hide_a_shift(seed):
    rows, labels, clients, domains = histograms(seed, SOME, shift=1.5)
    found = share_of(rows, labels, clients, domains)
    assert found > LARGER_PART
    assert found == pytest.approx(plain_share(rows, labels, domains), abs=1e-6)


@pytest.mark.slow
def test_in_many_dimensions_domains_that_do_not_differ_give_none():
    for seed in range(10):
        assert share_of(*histograms(seed, SOME, shift=0.0)) == 0.0


def test_loud_dimensions_do_not_hide_a_shift():
    rows, *where = histograms(0, SOME, shift=1.5)
    rows[:, 400:] *= 1e5
    assert share_of(rows, *where) > LARGER_PART


def test_a_dimension_that_is_constant_tells_nothing():
    rows, *where = histograms(0, SOME, shift=0.0)
    rows[:, 700:] = 3.7
    assert share_of(rows, *where) == 0.0
