"""`FederatedData` of arrays and of torch data sets, and what it refuses."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from PIL import Image
from test_partition import SPLITTERS, divide, make_dataset, numbered, numbers

from federatedscope_ggeur import run
from federatedscope_ggeur.data import (
    ClientData,
    Domain,
    Embeddings,
    Expected,
    FederatedData,
    centralise,
    check_splits,
    class_counts,
    fingerprint,
    held_lazily,
    sizes_of,
    validation_share,
)
from federatedscope_ggeur.data.split import split_by_row, split_domain, stratified_split
from federatedscope_ggeur.errors import ConfigError, DataError

N = 40
X = np.random.default_rng(0).normal(size=(N, 3)).astype("float32")
Y = np.arange(N) % 4
SITE = np.array(["north", "south"])[np.arange(N) // 5 % 2]
NCM = {"ggeur.closed_form": "ncm", "ggeur.keep": "trained", "ggeur.init": "random"}


def test_names_users_and_defaults():
    names = np.array(["cat", "dog", "emu", "owl"])
    data = FederatedData.from_arrays(X, names[Y], users=np.arange(N) // 10)
    assert data.class_names == tuple(names)
    (client,) = data.clients
    assert (client.number, client.domain, len(client.test)) == (1, "all", 0)
    assert client.train.users.tolist() == (np.arange(N) // 10).tolist()
    other = FederatedData.from_arrays(X, names[Y], class_names=names[::-1].tolist())
    assert other.clients[0].train.labels.tolist() == (3 - Y).tolist()


def test_negative_labels_are_names_and_no_positions():
    data = FederatedData.from_arrays(X, np.where(Y == 0, 1, -1))
    assert data.class_names == ("-1", "1")
    assert data.clients[0].train.labels.tolist() == (Y == 0).astype(int).tolist()
    expected = Expected(data.class_names, given=data.given)
    _, numbers = expected.labelled(X[:2], np.array([-1, 1]))
    assert numbers.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"label -1 .* leave out the list of classes"):
        FederatedData.from_arrays(X, Y - 1, class_names=list("abcd"))


def test_names_may_be_bytes():
    site = np.array(["süd", "nord"])[Y % 2]
    in_bytes = np.char.encode(site, "utf-8")
    data = FederatedData.from_arrays(X, Y, in_bytes, in_bytes)
    assert [client.domain for client in data.clients] == ["nord", "süd"]


def test_rows_may_be_bfloat16():
    rows = torch.from_numpy(X).bfloat16()
    data = FederatedData.from_arrays(rows, Y)
    assert torch.equal(data.clients[0].train.features, rows.float())


def test_a_dict_need_not_say_that_data_are_given():
    """That a run on them is the run on files: tests/engines/contract."""
    data = FederatedData.from_arrays(X, Y, SITE, SITE)
    said = {"federate.method": "ggeur", "data.type": "embeddings@ggeur"}
    full = {**NCM, **said, "ggeur.use": True}
    found = [run(settings, data).predict_proba(X) for settings in (full, NCM)]
    assert np.array_equal(*found)


def test_a_dict_with_data_may_name_its_own_type():
    data = FederatedData.from_arrays(X, Y, SITE)
    with pytest.raises(ConfigError, match=r"data\.type 'mine' is unknown"):
        run({"data": {"type": "mine"}}, data)
    with pytest.raises(ConfigError, match="takes only 'ggeur'"):
        run({"ggeur.closed_form": "lda"})


#: Each row's entry is an array.
ARRAYS = np.empty(N, dtype=object)
ARRAYS[:] = [Y] * N


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ["a", "b", "c"]}, "label 3 in row .* is out of range"),
        ({"clients": SITE[:4]}, r"clients: must be of shape \(40,\)"),
        ({"domains": np.arange(N)}, "client 'north' has rows of 20 domains"),
        ({"clients": np.where(Y == 2, None, SITE)}, "clients: row 2 has None"),
        ({"clients": np.where(Y == 2, 3, SITE.astype(object))}, "clients: row 2 has 3"),
        ({"clients": np.where(Y == 2, np.nan, Y)}, "clients: row 2 has nan"),
        ({"clients": np.where(Y == 2, pandas.NA, SITE)}, "clients: row 2 has <NA>"),
        ({"clients": np.where(Y == 2, True, Y.astype(object))}, "row 2 has True"),
        ({"domains": np.where(Y == 2, np.nan, 1.0)}, "domains: row 2 has nan"),
        ({"clients": ARRAYS}, "clients: must hold texts, numbers or dates"),
        ({"clients": Y + 1j}, "clients: must hold texts, numbers or dates"),
        ({"test": np.arange(N)}, "test: must be True or False for each row"),
        ({"test": Y == 1, "validation": Y == 1}, "row 1 is both a test"),
        ({"users": Y - 1}, "negative user"),
    ],
)
def test_bad_arrays_are_refused(changes, message):
    given = {"features": X, "labels": Y, "clients": SITE, **changes}
    with pytest.raises(DataError, match=message) as caught:
        FederatedData.from_arrays(**given)
    assert len(str(caught.value).splitlines()) == 1


#: Rows of another length than those of `X`.
LONGER = Embeddings(torch.ones(2, 5), torch.ones(2).long(), "a")


def federation(**changes):
    rows = Embeddings(torch.from_numpy(X), torch.from_numpy(Y), "all")
    clients = [ClientData(k, "all", rows, rows.select([])) for k in (1, 2)]
    clients[1] = replace(clients[1], **changes.pop("second", {}))
    made = {"domains": ("all",), "unseen": (), "class_names": tuple("abcd")}
    return FederatedData(tuple(clients), **{**made, "encoder": "any", **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"second": {"number": 1}}, "numbers must differ and ascend, but 1 occurs"),
        ({"second": {"number": 0}}, r"but they are \[1, 0\]"),
        ({"class_names": tuple("abc")}, "client 1, train: label 3 in row 3"),
        ({"second": {"domain": "sea"}}, "domain 'sea' is missing in"),
        (
            {"second": {"test": LONGER}},
            "client 2, test: rows have D = 5, but those of client 1, train have D = 3",
        ),
    ],
)
def test_federations_that_no_run_could_use_are_refused(changes, message):
    federation()
    with pytest.raises(DataError, match=message):
        federation(**changes)


def test_what_nothing_can_be_learned_from_is_said(caplog):
    for features, labels, problem in (
        (X, np.zeros(N, int), "of one class, '0': no head learns anything"),
        (np.ones_like(X), Y, "are equal, so no head can tell classes apart"),
    ):
        data = FederatedData.from_arrays(features, labels)
        caplog.clear()
        results = run("ggeur_own_embeddings.yaml", data, overrides=NCM)
        warned = [one for one in caplog.records if one.levelname == "WARNING"]
        assert sum(problem in one.getMessage() for one in warned) == 1
        assert sum(problem in note for note in results.notes) == 1
    assert FederatedData.from_arrays(X, Y).faults() == []


def test_test_rows_that_are_training_rows_are_counted():
    test = np.arange(N) % 5 == 0
    repeated = X.copy()
    repeated[[0, 5]], repeated[7] = X[1], X[10]  # rows 0, 5 and 10 are test rows
    data = FederatedData.from_arrays(repeated, Y, SITE, test=test)
    said = [
        "3 of 8 test rows equal training rows, so scores may be too good; remove "
        "these rows from the test set"
    ]
    assert data.faults() == centralise(data).faults() == said
    rows = Embeddings(torch.tensor(X[1:3]), torch.zeros(2).long(), "away")
    apart = FederatedData.from_arrays(X, Y, SITE)
    (problem,) = replace(
        apart, unseen=(Domain("away", rows.select([]), rows),)
    ).faults()
    assert problem.startswith("2 of 2 test rows")
    assert FederatedData.from_arrays(X, Y, SITE, test=test).faults() == []


def test_rows_that_take_few_values_may_be_equal_by_chance():
    test = np.arange(N) % 5 == 0
    few = (np.arange(N) % 7)[:, None] > np.arange(6)
    data = FederatedData.from_arrays(few.astype(float), Y, SITE, test=test)
    (said,) = data.faults()
    assert said.startswith("8 of 8 test rows equal training rows")
    assert "but 32 of 32 training rows equal each other, too" in said
    assert said.endswith("remove only test rows that are copies")


class Pictures:
    """A data set of grey squares, as torchvision has them."""

    classes = ("dark", "light")

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.shades = rng.integers(0, 100, size=n) + 100 * (np.arange(n) % 2)

    def __len__(self):
        return len(self.shades)

    def __getitem__(self, row):
        shade = int(self.shades[row])
        return Image.new("RGB", (8, 8), (shade,) * 3), row % 2


def as_mappings(pictures):
    return [{"image": image, "label": y} for image, y in map(pictures.__getitem__,
            range(len(pictures)))]  # fmt: skip


@pytest.mark.parametrize(
    "form",
    [
        list,
        pytest.param(as_mappings, marks=pytest.mark.slow),
        pytest.param(lambda held: held, marks=pytest.mark.slow),
    ],
)
def test_torch_data_sets_are_embedded_through_the_cache(tmp_path, form):
    sites = {"north": Pictures(30, 1), "south": Pictures(20, 2)}
    given = {name: form(held) for name, held in sites.items()}
    made = [
        FederatedData.from_torch(
            given, "pixels", test={"south": form(Pictures(10, 3))},
            cache=str(tmp_path / "cache"), device="cpu",
        )
        for _ in range(2)
    ]  # fmt: skip
    data, again = made
    assert [len(c.train) for c in data.clients] == [30, 20]
    assert [len(c.test) for c in data.clients] == [0, 10]
    assert torch.equal(data.clients[1].train.features, again.clients[1].train.features)
    assert data.class_names == (Pictures.classes if form(sites["north"]) is
                                sites["north"] else ("0", "1"))  # fmt: skip
    found = run("ggeur_own_embeddings.yaml", data, overrides=NCM)
    assert found.final.avg > 0.9


def test_an_image_is_read_to_be_named_and_to_be_embedded(tmp_path):
    class Counted(Pictures):
        read = 0

        def __getitem__(self, row):
            self.read += 1
            return super().__getitem__(row)

    held = Counted(6, 0)
    FederatedData.from_torch(
        {"north": held}, "pixels", cache=str(tmp_path), device="cpu"
    )
    assert held.read == 2 * len(held)


def test_what_is_no_such_data_set_is_named(tmp_path):
    more = {"cache": str(tmp_path), "device": "cpu"}
    with pytest.raises(ConfigError, match="must hold a data set"):
        FederatedData.from_torch({}, "pixels", **more)
    with pytest.raises(ConfigError, match="'west' is not the name of a client"):
        FederatedData.from_torch({"a": Pictures(4, 0)}, "pixels",
                                 test={"west": Pictures(4, 0)}, **more)  # fmt: skip
    other = Pictures(4, 0)
    other.classes = ("light", "dark")
    with pytest.raises(DataError, match=r"'b': its classes are .* those of 'a'"):
        FederatedData.from_torch({"a": Pictures(4, 0), "b": other}, "pixels", **more)
    with pytest.raises(DataError, match="data set 'a': row 0 must be a pair"):
        FederatedData.from_torch({"a": [1, 2]}, "pixels", **more)
    tensors = [(torch.ones(3, 8, 8), 0)]
    with pytest.raises(DataError, match="row 0 has a Tensor and not a PIL image"):
        FederatedData.from_torch({"a": tensors}, "pixels", **more)


# Clients whose rows are ranges of shared rows.


CLASSES = 3
SPLITS = ("train", "test", "val")


@st.composite
def arrays(draw):
    """Rows of up to six clients in two domains, in any order and any split."""
    n = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    clients = rng.integers(0, 6, n)
    return {
        "features": rng.normal(size=(n, 2)).astype("float32"),
        "labels": rng.integers(0, CLASSES, n),
        "clients": clients,
        "domains": np.array(["a", "b"])[clients % 2],
        "split": rng.integers(0, 3, n),
    }


def divided(rows, kind=np.array) -> FederatedData:
    given, split = dict(rows), rows["split"]
    del given["split"]
    given |= {name: kind(rows[name]) for name in ("features", "labels")}
    given |= {"test": split == 1, "validation": kind(split == 2)}
    names = [str(c) for c in range(CLASSES)]
    return FederatedData.from_arrays(**given, class_names=names)


@given(arrays(), st.sampled_from([np.array, torch.tensor, list]))
def test_each_client_has_its_rows_in_their_order(rows, kind):
    data = divided(rows, kind)
    labels = np.unique(rows["clients"])
    assert [one.number for one in data.clients] == [*range(1, len(labels) + 1)]
    assert data.domains == tuple(dict.fromkeys(c.domain for c in data.clients))
    for client, who in zip(data.clients, labels):
        assert client.domain == ("a", "b")[who % 2]
        for place, split in enumerate(SPLITS):
            mine = (rows["clients"] == who) & (rows["split"] == place)
            part = getattr(client, split)
            np.testing.assert_array_equal(part.features, rows["features"][mine])
            np.testing.assert_array_equal(part.labels, rows["labels"][mine])
            assert part.domain == client.domain


@given(arrays())
def test_what_is_said_of_all_is_that_of_each(rows):
    ranges = divided(rows)
    each = tuple(ranges.clients)
    apart = FederatedData(each, ranges.domains, (), ranges.class_names, "arrays")
    counts = [torch.bincount(c.train.labels, minlength=CLASSES).tolist() for c in each]
    for data in (ranges, apart):
        assert class_counts(data.clients, CLASSES).tolist() == counts
        for split in SPLITS:
            sizes = [len(getattr(client, split)) for client in each]
            assert sizes_of(data.clients, split).tolist() == sizes
        held = list(held_lazily(data.clients))
        assert [one.number for one in held] == [one.number for one in each]
    assert fingerprint(ranges) == fingerprint(apart)
    assert ranges.rows("val").keys() == apart.rows("val").keys()
    for domain, part in ranges.rows("train").items():
        assert part.features.equal(apart.rows("train")[domain].features)


def test_rows_in_order_are_not_copied_if_nobody_changes_them():
    features = np.zeros((6, 2), dtype="float32")
    labels, clients = np.arange(6) % 2, [1, 1, 2, 2, 1, 2]
    test = np.arange(6) > 3
    for copy in (True, False):
        data = FederatedData.from_arrays(
            features, labels, clients, test=test, copy=copy
        )
        train = data.clients[1].train.features.numpy()
        assert np.shares_memory(train, features) == (not copy)


def test_a_client_by_position():
    data = FederatedData.from_arrays(np.ones((4, 2)), [0, 1, 0, 1], [1, 2, 3, 4])
    assert isinstance(data.clients[-1], ClientData)
    assert [one.number for one in data.clients[1:3]] == [2, 3]
    with pytest.raises(IndexError):
        data.clients[4]


# All training rows in one place, and the test sets as they were.


@effort(max_examples=30)
@given(
    st.integers(0, 9),
    # At the last, some clients have no rows.
    st.sampled_from([*SPLITTERS.items(), ("lda", [{"alpha": 1e-6}])]),
    st.integers(0, 99),
)
def test_one_client_holds_every_clients_rows_in_order(more, splitter, seed):
    name, args = splitter
    divided = divide(make_dataset(), name, args, clients=2 + more, seed=seed)
    (client,) = centralise(divided).clients
    assert client.number == 1
    trains = [c.train for c in divided.clients]
    assert numbers(client.train) == [row for t in trains for row in numbers(t)]
    assert torch.equal(client.train.labels, torch.cat([t.labels for t in trains]))
    assert client.domain == client.train.domain == "all domains"


def test_what_is_not_trained_on_and_what_the_data_are_stays():
    divided = divide(make_dataset(), clients=5, validation=0.2)
    pooled = centralise(divided)
    assert pooled.domains == divided.domains
    pairs = [(divided.test_sets(), pooled.test_sets())]
    pairs.append((divided.rows("val"), pooled.rows("val")))
    for before, after in pairs:
        assert list(after) == list(before) == ["art", "photo"]
        for name, rows in before.items():
            assert len(rows) > 0
            assert numbers(after[name]) == numbers(rows)
            assert torch.equal(after[name].labels, rows.labels)
    (client,) = pooled.clients
    assert len(client.test) == len(client.val) == 0
    (trained,) = pooled.rows("train").items()
    assert trained[0] == "all domains"
    assert numbers(trained[1]) == numbers(client.train)
    assert (pooled.dim, pooled.num_classes) == (divided.dim, divided.num_classes)
    assert (pooled.class_names, pooled.encoder) == (divided.class_names, "numbers")
    assert pooled.is_centralised
    assert not divided.is_centralised
    assert centralise(pooled) is pooled


# The train/test split: exact sizes, disjoint, stratified, keyed by seed and domain.


labels_of_any_mix = st.lists(st.integers(0, 6), max_size=80).map(
    lambda values: np.array(values, dtype=np.int64)
)


@given(labels_of_any_mix, st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 9))
def test_sizes_are_exact_and_parts_disjoint(labels, train, test, seed):
    test = min(test, 1 - train)
    a, b = stratified_split(labels, train, test, np.random.default_rng(seed))
    n = len(labels)
    assert len(a) == round(train * n)
    assert len(a) + len(b) == round((train + test) * n)
    assert len({*a, *b}) == len(a) + len(b)
    assert (np.diff(a) > 0).all()
    assert (np.diff(b) > 0).all()
    for c in set(labels.tolist()):
        count = (labels == c).sum()
        # one row for rounding the class, one for rounding the domain's total
        assert abs((labels[a] == c).sum() - train * count) <= 2


@examples(20)
@given(st.integers(0, 10**9))
def test_same_seed_same_split_other_seed_other_split(seed):
    first = split_domain(numbered(90, "photo", 3), [0.7, 0.0, 0.3], seed)
    again = split_domain(numbered(90, "photo", 3), [0.7, 0.0, 0.3], seed)
    other = split_domain(numbered(90, "photo", 3), [0.7, 0.0, 0.3], seed + 1)
    named = split_domain(numbered(90, "sketch", 3), [0.7, 0.0, 0.3], seed)
    assert numbers(first.train) == numbers(again.train)
    assert numbers(first.train) != numbers(other.train)
    assert numbers(first.train) != numbers(named.train)


def test_fractions_below_one_leave_rows_out():
    domain = split_domain(numbered(100, "photo", 3), [0.3, 0.0, 0.2], 0)
    assert (len(domain.train), len(domain.test)) == (30, 20)


@examples(20)
@given(st.integers(2, 60), st.integers(0, 9), st.sampled_from([1.0, 0.5]))
def test_by_row_no_row_moves_another(gone, seed, share):
    """Splits by class do not keep this."""
    splits, rows = [0.7 * share, 0.0, 0.3 * share], numbered(90, "photo", 3)
    whole = split_by_row(split_domain(rows, [0.7, 0.0, 0.3], 0), splits, seed)
    kept = rows.select([k for k in range(90) if k != gone])
    less = split_by_row(split_domain(kept, [0.6, 0.0, 0.4], 1), splits, seed)
    for part in ("train", "test"):
        before, after = (set(numbers(getattr(d, part))) for d in (whole, less))
        assert before - after <= {gone}
        assert after <= before


def test_by_row_parts_have_their_shares():
    domain = split_domain(numbered(4000, "photo", 3), [0.7, 0.0, 0.3], 0)
    parts = split_by_row(domain, [0.6, 0.0, 0.2], 0)
    assert abs(len(parts.train) - 2400) < 100
    assert abs(len(parts.test) - 800) < 100
    assert not {*numbers(parts.train)} & {*numbers(parts.test)}


def test_domain_too_small_to_split_is_refused():
    with pytest.raises(DataError, match=r"photo.*1 row.*data\.splits"):
        split_domain(numbered(1, "photo", 3), [0.7, 0.0, 0.3], 0)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([0.7, 0.3], r"data\.splits.*three numbers"),
        (0.7, r"data\.splits.*three numbers"),
        (["0.7", 0.0, 0.3], r"data\.splits.*three numbers"),
        ([0.7, 0.0, -0.3], r"data\.splits.*between 0 and 1"),
        ([float("nan"), 0.0, 0.3], r"data\.splits.*between 0 and 1"),
        ([0.0, 0.0, 0.3], r"data\.splits.*more than 0"),
        ([0.7, 0.0, 0.0], r"data\.splits.*more than 0"),
        ([0.7, 0.0, 0.4], r"data\.splits.*at most 1"),
    ],
)
def test_impossible_splits_are_refused(splits, message):
    with pytest.raises(ConfigError, match=message):
        check_splits(splits)


def test_validation_takes_its_part_of_what_is_not_for_testing():
    assert validation_share([0.6, 0.2, 0.2]) == pytest.approx(0.25)
    assert validation_share([0.7, 0.0, 0.3]) == 0
    domain = split_domain(numbered(100, "photo", 3), [0.6, 0.2, 0.2], 0)
    assert (len(domain.train), len(domain.test)) == (80, 20)
    same = split_domain(numbered(100, "photo", 3), [0.8, 0.0, 0.2], 0)
    assert numbers(same.train) == numbers(domain.train)
