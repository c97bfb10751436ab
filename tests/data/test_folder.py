"""Folders of embeddings: every layout is read, everything else refused by name."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from federatedscope_ggeur.data import read_embeddings_folder
from federatedscope_ggeur.errors import DataError

SPLITS = [0.7, 0.0, 0.3]


def arrays(n=10, dim=4, classes=3, dtype=np.float32):
    features = np.arange(n * dim).reshape(n, dim).astype(dtype)
    return {"features": features, "labels": np.arange(n) % classes}


def pixels(n=10, shape=(3, 2, 2)):
    features = np.arange(n * 12).reshape(n, 12).astype(np.uint8)
    return {"features": features, "image_shape": np.array(shape)}


def save(path, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {**arrays(), **changes}
    np.savez(path, **{name: a for name, a in kept.items() if a is not None})


def read(root, seed=0):
    return read_embeddings_folder(root, SPLITS, seed)


def sizes(data):
    return [(d.name, len(d.train), len(d.test)) for d in data.domains]


def test_one_file_for_each_domain_is_split(tmp_path):
    save(tmp_path / "sketch.npz", **arrays(20))
    save(tmp_path / "art.npz", **arrays(10))
    data = read(tmp_path)
    assert sizes(data) == [("art", 7, 3), ("sketch", 14, 6)]
    assert (data.dim, data.class_names) == (4, ("0", "1", "2"))
    assert data.encoder == "unknown (precomputed embeddings)"
    whole = np.load(tmp_path / "art.npz")["features"]
    art = data.domains[0]
    both = torch.cat([art.train.features, art.test.features])
    assert sorted(both[:, 0].tolist()) == whole[:, 0].tolist()
    for part in (art.train, art.test):
        assert (part.features[:, 0].diff() > 0).all()  # original order


def test_domain_folders_keep_their_split(tmp_path):
    for name in ("b", "a"):
        save(tmp_path / name / "train.npz", **arrays(9))
        save(tmp_path / name / "test.npz", **arrays(5))
    data = read(tmp_path)
    assert sizes(data) == [("a", 9, 5), ("b", 9, 5)]
    assert torch.equal(
        data.domains[0].train.features, torch.tensor(arrays(9)["features"])
    )


def test_train_and_test_in_the_root_are_one_domain(tmp_path):
    save(tmp_path / "train.npz", **arrays(9))
    save(tmp_path / "test.npz", **arrays(5, classes=5))
    data = read(tmp_path)
    assert sizes(data) == [("all", 9, 5)]
    assert data.num_classes == 5


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", ">f4", "int16", "uint8"]
)
@pytest.mark.parametrize("label_dtype", ["uint8", "int32", ">i8", "float64"])
def test_dtypes_are_cast(tmp_path, dtype, label_dtype):
    given = arrays(dtype=dtype)
    save(tmp_path / "a.npz", **{**given, "labels": given["labels"].astype(label_dtype)})
    data = read(tmp_path)
    train = data.domains[0].train
    assert (train.features.dtype, train.labels.dtype) == (torch.float32, torch.int64)
    assert data.image_shape is None  # bytes too are embeddings without one


def test_class_names_and_encoder_are_read(tmp_path):
    save(tmp_path / "a.npz")
    (tmp_path / "class_names.txt").write_text("cat\ndog\nfish\nemu\n", encoding="utf-8")
    (tmp_path / "encoder.txt").write_text("CLIP ViT-B/16\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("not looked at", encoding="utf-8")
    data = read(tmp_path)
    assert data.class_names == ("cat", "dog", "fish", "emu")
    assert data.encoder == "CLIP ViT-B/16"


@pytest.mark.parametrize("listed", ["", "dog\nemu\ncat\n"])
def test_labels_may_be_names(tmp_path, listed):
    names = np.array(["cat", "dog", "cat", "emu"] * 5)
    save(tmp_path / "a.npz", features=np.arange(20.0)[:, None], labels=names)
    if listed:
        (tmp_path / "class_names.txt").write_text(listed)
    data = read(tmp_path)
    assert data.class_names == tuple(listed.split() or ["cat", "dog", "emu"])
    for rows in (data.domains[0].train, data.domains[0].test):
        found = [data.class_names[c] for c in rows.labels.tolist()]
        assert found == names[rows.features[:, 0].long().numpy()].tolist()


def test_labels_of_both_kinds_or_unknown_names_are_refused(tmp_path):
    save(tmp_path / "a.npz", labels=np.array(list("ababababab")))
    save(tmp_path / "b.npz")
    with pytest.raises(DataError, match=r"names in a\.npz, but numbers in b\.npz"):
        read(tmp_path)
    (tmp_path / "b.npz").unlink()
    (tmp_path / "class_names.txt").write_text("a\nc\n")
    with pytest.raises(DataError, match=r"a\.npz: row 1 has the label 'b'"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, r"lacks the array 'features'.*\['labels'\]"),
        ({"labels": None}, r"lacks the array 'labels'.*\['features'\]"),
        ({"features": np.zeros(10)}, r"'features' must have the shape.*\[10\]"),
        ({"labels": np.full(10, 10**12)}, r"label 1000000000000 is too large for"),
        ({"features": np.full((10, 2), "x")}, r"'features' must hold real numbers"),
        ({"features": np.zeros((10, 2), complex)}, r"real numbers.*complex"),
        ({"features": np.zeros((10, 0))}, r"no columns"),
        ({"features": np.diag([1.0] * 8 + [np.nan] * 2)}, r"NaN or inf.*is 8\."),
        ({"features": np.diag([1.0] * 9 + [np.inf])}, r"NaN or inf.*is 9\."),
        ({"features": np.diag([1.0] * 6 + [1e39] * 4)}, r"too large.*float32.*is 6\."),
        ({"features": np.zeros((0, 4)), "labels": np.zeros(0, int)}, r"have no rows"),
        ({"features": np.full((10, 2), None)}, r"needs pickle.*refused"),
        ({"labels": np.full(10, 1, dtype=object)}, r"needs pickle.*refused"),
        (pixels(shape=(3.5, 2.0, 2.0)), r"'image_shape' must hold whole numbers"),
        ({"users": np.array(list("abcdefghij"))}, r"'users' must hold whole numbers"),
    ],
)
def test_bad_arrays_are_refused(tmp_path, changes, message):
    save(tmp_path / "photo.npz", **changes)
    where = r"(?s).*" if "too large for" in message else r"(?s)photo\.npz: .*"
    with pytest.raises(DataError, match=where + message):
        read(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"no archive",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:160] + bytes([whole[160] ^ 1]) + whole[161:],
        lambda whole: pickle.dumps({"features": [1]}),
    ],
    ids=["empty", "text", "cut", "flipped bit", "pickle"],
)
def test_corrupt_file_is_refused(tmp_path, damage):
    path = tmp_path / "photo.npz"
    save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"photo\.npz: the file is corrupt"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a.npz", "b/train.npz", "b/test.npz"], r"'a', 'b'.* have different layouts"),
        (["a.npz", "train.npz", "test.npz"], r"'a', 'test', 'train'.* different lay"),
        (["train.npz", "test.npz", "b/train.npz", "b/test.npz"], "'train', 'b'"),
        (["train.npz"], r"no test\.npz"),
        (["test.npz"], r"no train\.npz"),
        (["a/train.npz", "a/test.npz", "b/test.npz"], r"b: there is no train\.npz"),
        (["a/photo.npz"], r"a: there is no train\.npz and no test\.npz"),
        (["a/train.npz", "a/test.npz", "a/new.npz"], r"a: there must be no .*new\.npz"),
        (["a/train.npz", "a/test.npz", "a/val.npz"], r"a/val\.npz: no file of valid"),
        (["train.npz", "test.npz", "val.npz"], r"val\.npz: no file of .*data\.splits"),
    ],
)
def test_unclear_layouts_are_refused(tmp_path, files, message):
    for name in files:
        save(tmp_path / name)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_extensions_are_read_in_any_case_and_other_files_of_rows_are_named(
    tmp_path, caplog
):
    for name in ("east.npz", "west.npz"):
        save(tmp_path / name)
    (tmp_path / "west.npz").rename(tmp_path / "west.NPZ")
    (tmp_path / "._west.NPY").touch()
    assert [domain.name for domain in read(tmp_path).domains] == ["east", "west"]
    assert not caplog.text
    (tmp_path / "north").mkdir()
    for name in ("south.NPY", "north/train.csv"):
        (tmp_path / name).touch()
    read(tmp_path)
    assert "2 files are ignored" in caplog.text
    assert "('south.NPY', 'north/train.csv')" in caplog.text
    (tmp_path / "east.npz").rename(tmp_path / "west.npz")
    if len(list(tmp_path.glob("west*"))) == 2:  # not where both names are one file
        with pytest.raises(DataError, match=r"west\.NPZ is there, too"):
            read(tmp_path)
    for path in tmp_path.glob("west*"):
        path.unlink()
    with pytest.raises(DataError, match=r"no \.npz file, but it has 'south\.NPY', 'n"):
        read(tmp_path)


def test_missing_and_empty_roots_say_what_was_looked_for(tmp_path):
    layouts = r".*<domain>\.npz.*<domain>/train\.npz.*'features'"
    (tmp_path / "file").write_text("", encoding="utf-8")
    for name, problem in (
        ("absent", r"data\.root.*absent does not exist"),
        ("", r"has no \.npz file"),
        ("file", "file is not a folder"),
    ):
        with pytest.raises(DataError, match=problem + layouts):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("class_names.txt", b"cat\ndog\n", r"photo\.npz: label 2 in row 2.*2 classes"),
        ("class_names.txt", b"\n", r"class_names\.txt: names no class; name every"),
        ("class_names.txt", b"cat\n\ndog\n", r"class_names\.txt: line 2 is empty"),
        ("class_names.txt", b"cat\ndog\ncat\n", r"line 3 repeats the name 'cat'"),
        ("class_names.txt", b"\xff\xfe\xfa", r"names\.txt: the text is not UTF-8"),
        ("encoder.txt", b"one\ntwo\n", r"encoder\.txt: must hold one line"),
    ],
)
def test_bad_text_files_are_refused(tmp_path, name, content, message):
    save(tmp_path / "photo.npz")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


OPTIONAL = ["class_names.txt", "encoder.txt"]
#: What stands in the place of a file, and what is said of it.
NO_FILES = {
    "link": (lambda path: path.symlink_to("absent"), "is a link to 'absent'"),
    "folder": (Path.mkdir, "is a folder, not a file"),
}
if hasattr(os, "mkfifo"):
    NO_FILES["pipe"] = os.mkfifo, "is a pipe.*not a file"


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["c.npz", "sketch/train.npz", *OPTIONAL])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, name, kind):
    make, said = NO_FILES[kind]
    save(tmp_path / "photo.npz")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    with pytest.raises(DataError, match=rf"{name}: {said}"):
        read(tmp_path)


@pytest.fixture
def deny(monkeypatch):
    """Make the system refuse paths of a name; file modes do not stop root."""

    def deny(name):
        def refusing(whole):
            def wrapped(path, *args, **kwargs):
                if Path(path).name == name:
                    raise PermissionError(13, "Permission denied", str(path))
                return whole(path, *args, **kwargs)

            return wrapped

        monkeypatch.setattr("builtins.open", refusing(open))
        for method in ("iterdir", "read_text"):
            monkeypatch.setattr(Path, method, refusing(getattr(Path, method)))

    return deny


@pytest.mark.parametrize("name", ["photo.npz", "lost+found", "data", *OPTIONAL])
def test_what_may_not_be_read_is_named(tmp_path, deny, name):
    root = tmp_path / "data"
    save(root / "photo.npz")
    (root / "lost+found").mkdir()
    for text in OPTIONAL:
        (root / text).write_text("a\nb\nc" if text == OPTIONAL[0] else "clip")
    assert sizes(read(root)) == [("photo", 7, 3)]
    deny(name)
    problem = rf"{name.replace('+', '.')}: .* cannot be read \(Permission denied\)"
    with pytest.raises(DataError, match=problem):
        read(root)


def test_pixels_and_users_stay_together_when_they_are_split(tmp_path):
    save(tmp_path / "day.npz", **pixels(), users=np.arange(10) + 5)
    domain = read(tmp_path).domains[0]
    for rows in (domain.train, domain.test):
        assert rows.image_shape == (3, 2, 2)
        firsts = torch.from_numpy(pixels()["features"])[rows.users - 5]
        assert torch.equal(rows.features, firsts)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 2, 5, 0, 2, 5], "no row has the label 1, 3, 4. The 3 labels that occur"),
        ([0, 1, 2, 0, 1, 2], ""),
        ([-1, 1, 1, -1, 1, -1], ""),
        ([-1, 0, 1, -1, 0, 1], "If it marks rows without a label, leave these rows"),
    ],
)
def test_labels_that_few_people_want_are_said(tmp_path, caplog, labels, said):
    save(tmp_path / "art.npz", **{**arrays(6), "labels": np.array(labels)})
    read(tmp_path)
    assert said in caplog.text
    assert bool(caplog.text) == bool(said)


@pytest.mark.parametrize(
    ("names", "is_split"),
    [
        (["Training", "Testing"], True),
        (["train_set", "test-set"], True),
        (["Train", "Test"], True),
        (["train2019", "val2019"], True),
        (["training data", "holdout"], True),
        (["training", "art"], False),
        (["testing", "test_data"], False),
        (["trains", "tests"], False),
    ],
)
def test_domains_called_as_the_parts_of_a_split_are_refused(tmp_path, names, is_split):
    for name in names:
        save(tmp_path / f"{name}.npz")
    if not is_split:
        assert len(read(tmp_path).domains) == 2
        return
    with pytest.raises(DataError, match=r"look like the parts of a split.*call the"):
        read(tmp_path)
