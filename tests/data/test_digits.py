"""The bundled digits: four fixed domains of disjoint samples, split by the seed."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from federatedscope_ggeur.data import read_digits_quickstart

SPLITS = [0.7, 0.0, 0.3]


@pytest.fixture(scope="module")
def digits():
    return read_digits_quickstart(SPLITS, seed=0)


def sorted_rows(domain):
    """All rows of a domain, in an order that does not depend on the split."""
    rows = torch.cat([domain.train.features, domain.test.features]).numpy()
    return rows[np.lexsort(rows.T)]


def test_shape_names_and_order(digits):
    names = [domain.name for domain in digits.domains]
    assert names == ["clean", "inverted", "blurred", "noisy"]
    assert (digits.dim, digits.num_classes) == (324, 10)
    assert digits.class_names == tuple("0123456789")
    assert digits.encoder.startswith("hog(")


def test_every_sample_is_in_one_domain_with_even_classes(digits):
    labels = [
        torch.cat([domain.train.labels, domain.test.labels])
        for domain in digits.domains
    ]
    assert [len(each) for each in labels] == [450, 449, 449, 449]
    counts = torch.stack([each.bincount(minlength=10) for each in labels])
    assert (counts.max(dim=0).values - counts.min(dim=0).values <= 1).all()
    assert counts.sum(dim=0).tolist() == np.bincount(load_digits().target).tolist()


def test_domain_sizes_after_the_split(digits):
    for domain in digits.domains:
        n = len(domain.train) + len(domain.test)
        assert len(domain.train) == round(0.7 * n)


def test_seed_changes_the_split_but_not_the_domains(digits):
    other = read_digits_quickstart(SPLITS, seed=1)
    again = read_digits_quickstart(SPLITS, seed=0)
    for first, second, same in zip(digits.domains, other.domains, again.domains):
        assert np.array_equal(sorted_rows(first), sorted_rows(second))
        assert not torch.equal(first.train.features, second.train.features)
        assert torch.equal(first.train.features, same.train.features)


def test_what_a_reader_changes_is_its_own(digits):
    features = digits.domains[0].train.features.clone()
    again = read_digits_quickstart(SPLITS, seed=0)
    again.domains[0].train.features.zero_()
    once_more = read_digits_quickstart(SPLITS, seed=0)
    assert torch.equal(once_more.domains[0].train.features, features)
