"""The bundled digits as images."""

import numpy as np
import pytest
from own_process import python
from sklearn.datasets import load_digits

from federatedscope_ggeur.data.images import IMAGE_READERS, bundled_digits
from federatedscope_ggeur.data.images.bundled_digits import (
    imaged_digits,
    read_bundled_digits,
)

pytestmark = pytest.mark.slow


def grey(images):
    return np.stack([np.asarray(images.load(i))[..., 0] for i in range(len(images))])


def test_four_domains_of_all_digits():
    data = IMAGE_READERS["bundled_digits"]("")
    names = ["clean", "inverted", "blurred", "noisy"]
    assert [domain.name for domain in data.domains] == names
    assert data.grey
    assert sum(len(domain.train) for domain in data.domains) == 1797
    for domain in data.domains:
        assert domain.test is None
        assert set(domain.train.labels) == set(range(10))


def test_pixels_are_the_imaged_ones_in_256_steps():
    data, imaged = read_bundled_digits(""), imaged_digits()
    for domain in data.domains:
        images, labels = imaged[domain.name]
        assert np.abs(grey(domain.train) / 255 * 16 - images).max() <= 16 / 510 + 1e-9
        assert (domain.train.labels == labels).all()


def test_one_domain_of_the_digits_as_they_are():
    data, digits = read_bundled_digits("", imaging=False), load_digits()
    (domain,) = data.domains
    assert domain.name == "digits"
    assert (domain.train.labels == digits.target).all()
    assert (grey(domain.train) == np.rint(digits.images * 255 / 16)).all()


def test_a_release_of_scikit_learn_that_keeps_them_elsewhere(monkeypatch):
    usual = read_bundled_digits("", imaging=False).domains[0].train
    monkeypatch.setattr(bundled_digits, "_DIGITS_FILE", ("nowhere.csv",))
    other = read_bundled_digits("", imaging=False).domains[0].train
    assert (grey(other) == grey(usual)).all()
    assert (other.labels == usual.labels).all()


def test_scikit_learn_is_not_imported_for_them():
    script = (
        "import sys; from federatedscope_ggeur import run; "
        "run('ggeur_quickstart', overrides={'federate.total_round_num': 1}); "
        "assert 'sklearn' not in sys.modules"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
