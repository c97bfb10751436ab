"""Means of prompts against plain numpy; the file that a user may bring.

Tests of extras/text/features.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federatedscope_ggeur.data import read_embeddings_folder
from federatedscope_ggeur.data.folder import is_text_file
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.extras.text.load import mean_features, read_text_file


def test_a_class_is_the_mean_of_its_unit_prompts_made_unit():
    each = np.random.default_rng(0).normal(size=(3, 5, 4))
    units = each / np.sqrt((each**2).sum(axis=2, keepdims=True))
    means = units.sum(axis=1) / 5
    expected = means / np.sqrt((means**2).sum(axis=1, keepdims=True))
    found = mean_features(torch.from_numpy(each))
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), expected, atol=1e-7)


def test_a_file_of_ones_own(tmp_path):
    rows = np.random.default_rng(1).normal(size=(3, 4))
    np.savez(tmp_path / "text.npz", features=rows, logit_scale=50.0)
    found = read_text_file(tmp_path / "text.npz", 3, 4)
    assert found.scale == 50
    assert np.allclose(found.features.norm(dim=1), 1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(found.features, unit, atol=1e-7)
    np.savez(tmp_path / "text.npz", features=2 * rows, logit_scale=50.0)
    assert read_text_file(tmp_path / "text.npz", 3, 4).key == found.key
    np.savez(tmp_path / "text.npz", features=rows, logit_scale=51.0)
    assert read_text_file(tmp_path / "text.npz", 3, 4).key != found.key


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"features": np.ones((2, 4)), "logit_scale": 1.0}, "3 classes and D = 4"),
        ({"features": np.ones((3, 4))}, "logit_scale"),
        ({"features": np.zeros((3, 4)), "logit_scale": 1.0}, "row of zeros"),
        ({"features": np.full((3, 4), np.nan), "logit_scale": 1.0}, "NaN"),
        ({"features": np.ones((3, 4)), "logit_scale": 0.0}, "above 0"),
        ({"features": np.ones((3, 4)), "logit_scale": np.inf}, "at most 1e\\+06"),
        ({"features": np.array([[{}]] * 3), "logit_scale": 1.0}, "cannot be read"),
    ],
    ids=str,
)
def test_files_that_cannot_be_used(tmp_path, arrays, problem):
    np.savez(tmp_path / "text.npz", **arrays)
    with pytest.raises(DataError, match=problem):
        read_text_file(tmp_path / "text.npz", 3, 4)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_text_file(tmp_path / "text.npz", 3, 4)


def test_text_is_no_domain_but_a_domain_may_be_called_so(tmp_path):
    rows = {"features": np.eye(4), "labels": np.array([0, 0, 1, 1])}
    np.savez(tmp_path / "art.npz", **rows)
    np.savez(tmp_path / "text.npz", features=np.eye(2, 4), logit_scale=100.0)
    splits = [0.5, 0.0, 0.5]
    assert is_text_file(tmp_path / "text.npz")
    domains = read_embeddings_folder(tmp_path, splits, 0).domains
    assert [domain.name for domain in domains] == ["art"]
    np.savez(tmp_path / "text.npz", **rows)
    assert not is_text_file(tmp_path / "text.npz")
    domains = read_embeddings_folder(tmp_path, splits, 0).domains
    assert [domain.name for domain in domains] == ["art", "text"]
