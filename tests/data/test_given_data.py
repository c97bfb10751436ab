"""`FederatedData` of arrays and of torch data sets, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from federatedscope_ggeur import run
from federatedscope_ggeur.data import (
    ClientData,
    Domain,
    Embeddings,
    FederatedData,
    centralise,
)
from federatedscope_ggeur.errors import ConfigError, DataError

N = 40
X = np.random.default_rng(0).normal(size=(N, 3)).astype("float32")
Y = np.arange(N) % 4
SITE = np.array(["north", "south"])[np.arange(N) // 5 % 2]


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_rows_go_to_their_clients_and_splits(kind):
    test, val = np.arange(N) % 5 == 0, np.arange(N) % 5 == 1
    data = FederatedData.from_arrays(
        kind(X), kind(Y), SITE, np.where(SITE == "north", "day", "night"),
        test=test, validation=kind(val),
    )  # fmt: skip
    assert [(c.number, c.domain) for c in data.clients] == [(1, "day"), (2, "night")]
    assert data.domains == ("day", "night")
    assert data.class_names == ("0", "1", "2", "3")
    for client, site in zip(data.clients, ("north", "south")):
        parts = {"train": ~test & ~val, "test": test, "val": val}
        for split, mask in parts.items():
            mine = mask & (site == SITE)
            rows = getattr(client, split)
            assert np.array_equal(rows.features.numpy(), X[mine])
            assert np.array_equal(rows.labels.numpy(), Y[mine])
            assert rows.domain == client.domain


def test_names_users_and_defaults():
    names = np.array(["cat", "dog", "emu", "owl"])
    data = FederatedData.from_arrays(X, names[Y], users=np.arange(N) // 10)
    assert data.class_names == tuple(names)
    (client,) = data.clients
    assert (client.number, client.domain, len(client.test)) == (1, "all", 0)
    assert client.train.users.tolist() == (np.arange(N) // 10).tolist()
    other = FederatedData.from_arrays(X, names[Y], class_names=names[::-1].tolist())
    assert other.clients[0].train.labels.tolist() == (3 - Y).tolist()


def test_names_may_be_bytes():
    site = np.array(["süd", "nord"])[Y % 2]
    in_bytes = np.char.encode(site, "utf-8")
    data = FederatedData.from_arrays(X, Y, in_bytes, in_bytes)
    assert [client.domain for client in data.clients] == ["nord", "süd"]


def test_rows_may_be_bfloat16():
    rows = torch.from_numpy(X).bfloat16()
    data = FederatedData.from_arrays(rows, Y)
    assert torch.equal(data.clients[0].train.features, rows.float())


def test_a_run_on_them_is_the_run_on_files(tmp_path):
    test = np.arange(N) % 2 == 0
    for domain in ("north", "south"):
        (tmp_path / domain).mkdir()
        for split, mask in (("train", ~test), ("test", test)):
            mine = mask & (domain == SITE)
            path = tmp_path / domain / f"{split}.npz"
            np.savez(path, features=X[mine], labels=Y[mine])
    settings = {"ggeur.closed_form": "lda", "ggeur.init": "random"}
    settings |= {"ggeur.keep": "trained", "ggeur.privacy.min_samples": 1}
    there = run(
        "ggeur_own_embeddings.yaml", overrides={**settings, "data.root": str(tmp_path)}
    )
    data = FederatedData.from_arrays(X, Y, SITE, SITE, test=test)
    here = run("ggeur_own_embeddings.yaml", data, overrides=settings)
    assert np.array_equal(here.predict_proba(X), there.predict_proba(X))
    assert here.final.accuracy == there.final.accuracy
    data_settings = {"federate.method": "ggeur", "data.type": "embeddings@ggeur"}
    full = {**settings, **data_settings, "ggeur.use": True}
    made = [run(said, data).predict_proba(X) for said in (full, settings)]
    assert np.array_equal(*made)


def test_a_dict_with_data_may_name_its_own_type():
    data = FederatedData.from_arrays(X, Y, SITE)
    with pytest.raises(ConfigError, match=r"data\.type 'mine' is unknown"):
        run({"data": {"type": "mine"}}, data)
    with pytest.raises(ConfigError, match="takes only 'ggeur'"):
        run({"ggeur.closed_form": "lda"})


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
            {
                "second": {
                    "test": Embeddings(torch.ones(2, 5), torch.ones(2).long(), "a")
                }
            },
            "client 2, test: rows have D = 5, but those of client 1, train have D = 3",
        ),
    ],
)
def test_federations_that_no_run_could_use_are_refused(changes, message):
    federation()
    with pytest.raises(DataError, match=message):
        federation(**changes)


def test_what_nothing_can_be_learned_from_is_said(caplog):
    settings = {"ggeur.closed_form": "ncm", "ggeur.keep": "trained"}
    settings |= {"ggeur.init": "random"}
    for features, labels, problem in (
        (X, np.zeros(N, int), "of one class, '0': no head learns anything"),
        (np.ones_like(X), Y, "are equal, so no head can tell classes apart"),
    ):
        data = FederatedData.from_arrays(features, labels)
        caplog.clear()
        results = run("ggeur_own_embeddings.yaml", data, overrides=settings)
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


@pytest.mark.slow
@pytest.mark.parametrize("form", [lambda held: held, as_mappings, list])
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
    settings = {"ggeur.closed_form": "ncm", "ggeur.keep": "trained"}
    found = run("ggeur_own_embeddings.yaml", data,
                overrides={**settings, "ggeur.init": "random"})  # fmt: skip
    assert found.final.avg > 0.9


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
