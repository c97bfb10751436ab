"""One door for rows: labels, titles and faults, whatever the source."""

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.data import Expected, FederatedData, Given, Rows
from federatedscope_ggeur.data.labels import (
    NAMES,
    POSITIONS,
    in_order,
    matched,
    numbered,
    read_labels,
)
from federatedscope_ggeur.errors import DataError

X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
#: One list of labels in all types that are the same labels.
WHOLE = [3, 1, 2, 1, 3, 2]
TYPES = {
    "list": list,
    "int8": lambda y: np.array(y, "int8"),
    "uint64": lambda y: np.array(y, "uint64"),
    "float64": lambda y: np.array(y, float),
    "float32 Tensor": lambda y: torch.tensor(y, dtype=torch.float32),
    "objects": lambda y: np.array(y, object),
    "Series": pandas.Series,
    "Int64": lambda y: pandas.Series(y, dtype="Int64"),
    "category": lambda y: pandas.Series(y).astype("category"),
    "masked, none of them": lambda y: np.ma.masked_array(y, [False] * len(y)),
    "text": lambda y: np.array(y).astype(str),
    "objects of text": lambda y: np.array(list(map(str, y)), object),
    "objects of numpy's text": lambda y: np.array(list(map(np.str_, y)), object),
    "bytes": lambda y: np.array(y).astype("S"),
    "bfloat16": lambda y: torch.tensor(y, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("kind", TYPES)
def test_labels_of_every_type_are_the_same_classes(kind):
    data = FederatedData.from_arrays(X, TYPES[kind](WHOLE))
    assert data.class_names == ("1", "2", "3")
    assert data.clients[0].train.labels.tolist() == [2, 0, 1, 0, 2, 1]
    assert data.given.labels == NAMES
    rows = Rows.of(X, TYPES[kind](WHOLE))
    for how in (NAMES, ""):  # as positions, 3 is none of three classes
        expected = Expected(("1", "2", "3"), "", Given(how))
        assert expected.numbers(rows).tolist() == [2, 0, 1, 0, 2, 1]
    names = Expected(("a", "b", "c", "d"), "", Given(POSITIONS))
    assert names.numbers(rows).tolist() == WHOLE


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (np.array([0, 1, np.nan, 1, 0, 1]), "row 2 is nan"),
        (np.array([0, 1, np.inf, 1, 0, 1]), "row 2 is inf"),
        (np.array([0, 1, 0.5, 1, 0, 1]), r"row 2 is 0\.5"),
        (np.ma.masked_array([0, 1, 9, 1, 0, 1], [0, 0, 1, 0, 0, 0]), "row 2 has a mas"),
        (np.array([b"a", b"a", b"\xff", b"a", b"b", b"a"]), "bytes in row 2"),
        (np.array([1, 2, "b", 1, 2, 1], object), "row 2, 'b', is no number like"),
        (np.array(["a", "b", None, "a", "b", "a"], object), "row 2, None, is no label"),
        (pandas.Series([1, 2, None, 1, 2, 1], dtype="Int64"), "row 2 is nan"),
        (
            pandas.Series(["a", "b", pandas.NA] * 2, dtype="string"),
            "row 2, <NA>, is no",
        ),
        (pandas.Series([np.zeros(2)] * 6).to_numpy(), "row 0, array.*, is no label"),
        (np.array(["a", "b", "", "a", "b", "a"]), "row 2, '', is empty"),
        (np.array([0, 1, 2**63, 1, 0, 1], "uint64"), "in row 2, which is too large"),
        (np.array([0, 1, 1e300, 1, 0, 1]), "in row 2, which is too large"),
        (np.zeros((6, 1), int), r"the shape \[n\]"),
        (np.zeros(6, complex), "dtype complex128"),
        (np.arange(5), "must have the same length"),
    ],
)
def test_what_is_no_label_is_named_with_its_row(labels, problem):
    for door in (FederatedData.from_arrays, lambda x, y: Rows.of(x, y)):
        with pytest.raises(DataError, match=problem):
            door(X, labels)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20, unique=True))
def test_numbers_and_texts_of_them_have_one_order(numbers):
    assert in_order(map(str, numbers)) == tuple(map(str, sorted(numbers)))
    labels = np.array(numbers)
    found = [matched(y, in_order(map(str, numbers)), NAMES)
             for y in (labels, labels.astype(float), labels.astype(str))]  # fmt: skip
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()
    assert found[0].tolist() == np.argsort(np.argsort(labels)).tolist()


def test_names_are_texts_first_and_then_numbers():
    names = ("1", "01", "10", "2.0", "nan")
    labels = np.array(["1", "01", "10.0", "2", "nan", "001", "3", "inf", "1_0"])
    assert matched(labels, names, NAMES).tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1]
    numbers = read_labels([10.0, 2.0, 3.0], "here")
    assert matched(numbers, names, NAMES).tolist() == [2, 3, -1]


def test_positions_are_places_in_the_list():
    names = ("0", "1", "10", "2")
    for labels in (np.array([2, 3, 0, 4, -1]), np.array(["2", "3", "0", "4", "-1"])):
        assert matched(labels, names, POSITIONS).tolist() == [2, 3, 0, -1, -1]
    words = np.array(["cat", "1"])
    assert matched(words, ("dog", "cat"), POSITIONS).tolist() == [1, 1]
    with pytest.raises(DataError, match="row 0 has the label 'cat', which is none of"):
        numbered(words, ("dog", "cow"), POSITIONS, "here")


def test_what_nobody_recorded_is_refused_only_where_it_matters():
    old = Expected(("1", "2", "3", "4"))
    assert old.numbers(Rows.of(X, [4, 1, 2, 1, 2, 3])).tolist() == [3, 0, 1, 0, 1, 2]
    assert old.numbers(Rows.of(X, [0, 1, 2, 1, 2, 3])).tolist() == [0, 1, 2, 1, 2, 3]
    both = Rows.of(X, [1, 2, 3, 1, 2, 3], "new.csv")
    with pytest.raises(DataError, match=r"new\.csv: the label 1 in row 0 may be a nam"):
        old.numbers(both)
    assert old.numbers(both, NAMES).tolist() == [0, 1, 2, 0, 1, 2]
    assert old.numbers(both, POSITIONS).tolist() == [1, 2, 3, 1, 2, 3]
    digits = Expected(tuple("0123"))
    assert digits.numbers(both).tolist() == [1, 2, 3, 1, 2, 3]


def test_labels_of_no_class_are_counted_and_named():
    head = Expected(("cat", "dog"), "", Given(NAMES))
    rows = Rows.of(X, ["cat", "cow", "dog", "cow", "emu", "cat"], "new.npz")
    found = head.numbers(rows)
    assert found.tolist() == [0, -1, 1, -1, -1, 0]
    said = "new.npz: 3 labels, the first in row 1, are none of the 2 classes: "
    assert head.unknown(rows, found) == said + "'cow' (2), 'emu' (1)"
    with pytest.raises(DataError, match="3 labels, the first in row 1"):
        head.labelled(rows)
    places = Rows.of(X, [0, 1, 0, 1, 0, 1])
    assert "--labels positions" in head.unknown(places, head.numbers(places))


@given(st.permutations(["a", "b", "c"]))
def test_titles_in_any_order_are_put_in_the_heads(order):
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    data = FederatedData.from_arrays(frame, WHOLE)
    head = Expected(data.class_names, "", data.given)
    assert np.array_equal(head.take(frame[list(order)]), X)
    assert np.array_equal(head.take(X), X)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["a", "b", "x"], "unknown 'x'; missing 'c'"),
        (["a", "b", "c", "d"], "unknown 'd'. Give"),
        (["a", "b"], "missing 'c'. Give"),
        (["a", "b", "b"], "two columns have the title 'b'"),
    ],
)
def test_other_titles_are_refused(columns, problem):
    head = Expected(("1",), "", Given(titles=("a", "b", "c")))
    frame = pandas.DataFrame(np.zeros((2, len(columns))), columns=columns)
    with pytest.raises(DataError, match=problem):
        head.take(frame)


def csv(folder, text):
    path = folder / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("0.5,1.5\n2.5,3.5\n", None),
        ("0,1\n0.5,1.5\n2.5,3.5\n", None),  # as pandas writes an array
        ("x,y\n0.5,1.5\n2.5,3.5\n", ("x", "y")),
        ("400,402\n0.5,1.5\n2.5,3.5\n", ("400", "402")),
        ("\ufeffx,y\n0.5,1.5\n2.5,3.5\n", ("x", "y")),
    ],
)
def test_titles_of_csv_files(tmp_path, text, titles):
    rows = Rows.of_file(csv(tmp_path, text), titles)
    assert rows.features.tolist() == [[0.5, 1.5], [2.5, 3.5]]
    assert rows.titles == titles


@pytest.mark.parametrize("title", ["label", "labels"])
def test_labels_of_csv_files_stay_texts(tmp_path, title):
    text = f"400,{title},402\n0.5,01,1.5\n2.5,1,3.5\n"
    rows = Rows.of_file(csv(tmp_path, text))
    assert rows.titles == ("400", "402")
    assert rows.labels.tolist() == ["01", "1"]
    assert Expected(("1", "01")).numbers(rows, NAMES).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("400,402\n0.5,1.5\n", "may be titles or a row"),
        ("0\n0.5\n", "may be titles or a row"),
        (",x,y\n0,0.5,1.5\n", "the first column has no title"),
        ("x,1.5\n0.5,1.5\n", "the first line has numbers, and 'x'"),
        ("0.5,1.5,cat\n", "column of labels is called 'label'"),
        ("x,x\n0.5,1.5\n", "two columns have the title 'x'"),
        ("label,labels,x\n1,1,0.5\n", "are both there"),
        ("x,y\n0.5,\n", "row 1: '' is no number"),
        ("x,y\n0.5,1e39\n", "too large for float32; the first such row is 0"),
        ("x,y\n0.5,1e16\n", r"beyond \+-1e\+15"),
        ("", "the file has no rows"),
        ("1,2,3\n1,2\n", "row 2: it has not as many columns"),
        ("1,2,3\n1,2,x\n", "row 2: 'x' is no number"),
        ("a;b;label\n1;2;x\n", "row 1: '1;2;x' is no number. Separate col"),
        ("a;b\n0,5;1,5\n", "row 1: it has .* with a decimal point"),
        ("0,5;1,5\n", "first line has numbers, .* Separate columns by commas"),
        ("a\tb\n1\t2\n", "is no number. Separate columns by commas"),
        ("a b\n1 2\n", "is no number. Separate columns by commas"),
        ("1,2,nan\n", "NaN or inf; the first such row is 0"),
    ],
)
def test_csv_files_that_are_refused(tmp_path, text, problem):
    with pytest.raises(DataError, match=problem):
        Rows.of_file(csv(tmp_path, text))


def test_a_column_called_label_may_be_one_of_the_features(tmp_path):
    titles = ("x", "label")
    path = csv(tmp_path, "label,x\n0.5,1.5\n").rename(tmp_path / "rows.CSV")
    rows = Rows.of_file(path, titles)
    assert rows.labels is None
    assert rows.in_order_of(titles).tolist() == [[1.5, 0.5]]
    path.write_text("label,x,labels\n0.5,1.5,cat\n")
    assert Rows.of_file(path, titles).labels.tolist() == ["cat"]


@pytest.mark.parametrize("end", ["npz", "npy"])
def test_text_is_no_array(tmp_path, end):
    (tmp_path / f"rows.{end}").write_text("text")
    with pytest.raises(DataError, match=f"no {end} a"):
        Rows.of_file(tmp_path / f"rows.{end}")


def test_files_of_other_kinds_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"names end with \.npz, \.npy or \.csv"):
        Rows.of_file(tmp_path / "rows.tsv")


def test_rows_of_whole_numbers_are_floats_to_a_head_and_pixels_to_a_network():
    rows, head = np.arange(6, dtype=np.uint8).reshape(2, 3), Expected(("1",))
    assert head.take(rows).dtype == torch.float32
    assert head.take(rows, pixels=True).dtype == torch.uint8


def test_rows_that_were_of_length_1_should_be(caplog):
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    head = Expected(("1",), "", Given(dim=3, unit_length=True))
    head.take(unit)
    assert not caplog.text
    head.take(X)
    assert "the head was made from rows of length 1" in caplog.text
    with pytest.raises(DataError, match="takes rows of 3 columns, not 2"):
        head.take(X[:, :2])


def test_the_record_is_read_as_it_was_written():
    held = Given(NAMES, ("a", "b"), 2, "l2", True)
    assert Given.of_plain({**held.plain(), "later": 1}) == held


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (np.array(["cat", "dog"]), ("cat", "dog")),
        (np.array([7, 8]), ("7", "8")),
        (pandas.Index(["cat", "dog"]), ("cat", "dog")),
    ],
)
def test_class_names_of_any_type_are_texts(names, found):
    data = FederatedData.from_arrays(X, [0, 1] * 3, class_names=names)
    assert data.class_names == found
    assert all(type(name) is str for name in data.class_names)
    assert data.given.labels == POSITIONS


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a", "a"], "repeats the name 'a'"),
        (["a", ""], "name 1 is empty"),
        ({"a", "b"}, "in order"),
        ([1, "1"], "repeats the name .1"),
        (["a", None], "row 1, None"),
        ("ab", "must list the names"),
    ],
)
def test_wrong_class_names_are_refused(names, problem):
    with pytest.raises(DataError, match=f"class_names: .*{problem}"):
        FederatedData.from_arrays(X, [0, 1] * 3, class_names=names)


def test_an_npz_may_bring_its_own_list_of_classes(tmp_path):
    names = np.array(["dog", "cat"])
    np.savez(tmp_path / "a.npz", features=X, labels=[0, 1] * 3, class_names=names)
    rows = Rows.of_file(tmp_path / "a.npz")
    head = Expected(("cat", "dog"), "", Given(POSITIONS))
    assert head.numbers(rows).tolist() == [1, 0] * 3
    np.savez(tmp_path / "b.npz", features=X, labels=[0, 2] * 3, class_names=names)
    with pytest.raises(DataError, match="label 2 in row 1 is no place"):
        head.numbers(Rows.of_file(tmp_path / "b.npz"))
