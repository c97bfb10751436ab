"""FEMNIST as LEAF writes it: json files, writers, 62 classes."""

import json

import numpy as np
import pytest
from image_miniatures import leaf_users, write_leaf

from federatedscope_ggeur.data import partition
from federatedscope_ggeur.data.encoders import EncoderSettings
from federatedscope_ggeur.data.encoding import EncodingSettings
from federatedscope_ggeur.data.extraction import ExtractionSettings
from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.femnist import read_femnist
from federatedscope_ggeur.data.registry import load_data
from federatedscope_ggeur.errors import DataError

# Not sorted: writers are numbered by name, over all files.
FIRST, SECOND = {"f9_07": 3, "f0_02": 2}, {"f5_11": 4}


def pixels_of(images):
    return np.stack([np.asarray(images.load(row)) for row in range(len(images))])


@pytest.mark.parametrize("below", ["", "data", "data/femnist/data"])
def test_all_data(tmp_path, below):
    one, two = leaf_users(FIRST), leaf_users(SECOND, seed=5)
    write_leaf(tmp_path / below / "all_data" / "all_data_0.json", one)
    write_leaf(tmp_path / below / "all_data" / "all_data_1.json", two)
    data = IMAGE_READERS["femnist"](tmp_path)
    (domain,) = data.domains
    assert (data.grey, domain.name, domain.test) == (True, "femnist", None)
    assert len(data.class_names) == 62
    assert "".join(data.class_names[8:12] + data.class_names[34:38]) == "89ABYZab"
    images = domain.train
    assert images.users.tolist() == [2, 2, 2, 0, 0, 1, 1, 1, 1]
    assert images.labels.tolist() == [0, 7, 14, 1, 8, 0, 7, 14, 21]
    assert images.keys[3] == "all_data/all_data_0.json#3"
    grey = np.concatenate([users[u][0] for users in (one, two) for u in users])
    assert (pixels_of(images) == grey[..., None]).all()


def test_train_and_test_go_before_all_data(tmp_path):
    for part, users in (("train", FIRST), ("test", SECOND), ("all_data", FIRST)):
        write_leaf(tmp_path / part / "a.json", leaf_users(users))
    (domain,) = read_femnist(tmp_path).domains
    assert domain.train.users.tolist() == [2, 2, 2, 0, 0]
    assert domain.test.users.tolist() == [1] * 4


def test_writers_are_clients(tmp_path):
    rows = {f"f{number:02}": 20 + number for number in range(4)}
    write_leaf(tmp_path / "all_data" / "all_data_0.json", leaf_users(rows))
    settings = EncodingSettings(
        EncoderSettings("pixels", image_size=8),
        ExtractionSettings(num_workers=0),
        "cpu",
        str(tmp_path / "cache"),
    )
    for _ in range(2):  # made, and read again
        data = load_data("femnist@ggeur", str(tmp_path), [0.8, 0.0, 0.2], 0, settings)
        found = partition(
            data, client_num=4, splitter="natural", splitter_args=[], seed=0
        )
        for number, client in enumerate(found.clients):
            assert set(client.train.users.tolist()) == {number}
            assert set(client.test.users.tolist()) <= {number}
            assert len(client.train) + len(client.test) == 20 + number


CONTENT = {"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784], "y": [1]}}}


def _with(**changes):
    return {**CONTENT, "user_data": {"a": {**CONTENT["user_data"]["a"], **changes}}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged or has another format"),
        ([], "'users' and a mapping 'user_data'"),
        ({"users": ["a"]}, "'users' and a mapping 'user_data'"),
        ({**CONTENT, "users": ["a", "b"]}, "no 'x' and 'y' of user 'b'"),
        ({**CONTENT, "users": ["a", "a"]}, "names a user twice"),
        ({**CONTENT, "users": [{}]}, "no 'x' and 'y' of user"),
        (_with(x=["a.jpg"]), "'x' of user 'a' must be rows of numbers"),
        (_with(y=[62]), "'y' of user 'a' must be whole numbers from 0 to 61"),
        (_with(y=[1.5]), "'y' of user 'a' must be whole numbers from 0 to 61"),
        (_with(y=1), "'y' of user 'a' must be whole numbers from 0 to 61"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "all_data" / "a.json"
    path.parent.mkdir()
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=rf"a\.json: .*{message}.*Fetch the file again"):
        read_femnist(tmp_path)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([], "must be 1 rows of 784 numbers"),
        ([[0.5] * 783], "must be 1 rows of 784 numbers"),
        ([0.5] * 784, "must be 1 rows of 784 numbers"),
        ([[0.5] * 783 + [[]]], "cannot be read"),
        ([[0.5] * 783 + [1.01]], "must lie between 0 and 1"),
        ([[0.5] * 783 + [float("nan")]], "must lie between 0 and 1"),
    ],
)
def test_other_pixels_are_refused_when_they_are_read(tmp_path, x, message):
    path = tmp_path / "all_data" / "a.json"
    path.parent.mkdir()
    path.write_text(json.dumps(_with(x=x)))
    images = read_femnist(tmp_path).domains[0].train
    with pytest.raises(DataError, match=rf"a\.json: .*{message}"):
        images.load(0)


def test_one_part_alone(tmp_path):
    write_leaf(tmp_path / "train" / "a.json", leaf_users(FIRST))
    with pytest.raises(
        DataError, match=r"'train', but none in 'test'.*user_data.*leaf"
    ):
        read_femnist(tmp_path)
