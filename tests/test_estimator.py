"""`FederatedClassifier`: what users of scikit-learn expect, and equal to a YAML run."""

import json
import logging
import pickle
import warnings
from functools import cache

import joblib
import numpy as np
import pandas
import pytest
import sklearn
import torch
from own_process import python
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from federatedscope_ggeur import FederatedClassifier, run
from federatedscope_ggeur.errors import ConfigError, DataError, StatisticsError
from federatedscope_ggeur.reporting import Kept, results_table

X, y = load_digits(return_X_y=True)
X, y = X[:600].astype("float32"), y[:600]
SITE = np.array(["north", "south", "east"])[np.arange(600) % 3]
CAMERA = np.where(np.arange(600) < 300, "old", "new")


@cache
def _fitted(method, shared):
    clients = SITE if shared else None
    return FederatedClassifier(method).fit(X, y, clients=clients)


def fitted(method="lda", shared=False):
    """A classifier of all rows, on three sites if they are shared among these."""
    made = FederatedClassifier(method)
    vars(made).update(vars(_fitted(method, shared)))
    return made


#: Weights of 1 repeat no row, so left-out rows choose as they do without weights.
FIXED = {
    "lda": {"ggeur.lda.shrinkage": 0.1, "ggeur.temperature": "none"},
    "ridge": {"ggeur.ridge.strength": 0.3, "ggeur.temperature": "none"},
    "ncm": {"ggeur.temperature": "none"},
}
#: Of scikit-learn's checks of weights it repeats rows, and a copy of a row stays where
#: another one is left out.
REPEATS = "check_sample_weight_equivalence_on_dense_data"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "fails"),
    [
        ("auto", {"federate.total_round_num": 1}, "check_sample_weight"),
        ("fedavg", {"federate.total_round_num": 5}, "check_sample_weight"),
        ("lda", None, REPEATS),
        ("lda", FIXED["lda"], "none of them"),
        ("ridge", FIXED["ridge"], "none of them"),
        ("ncm", FIXED["ncm"], "none of them"),
    ],
)
def test_scikit_learns_own_checks_pass(method, settings, fails):
    """All but one, which scikit-learn runs only where SCIPY_ARRAY_API is set."""
    made = FederatedClassifier(method, settings)
    found = {
        one["check_name"]: one["status"] for one in check_estimator(made, on_fail=None)
    }
    found.pop("check_array_api_input", None)
    wanted = {name: "failed" if name.startswith(fails) else "passed" for name in found}
    # Of scikit-learn 1.6: sparse rows are not taken, which passes.
    if (sparse := "check_sample_weight_equivalence_on_sparse_data") in found:
        wanted[sparse] = "passed"
    assert found == wanted


WEIGHTS = np.random.default_rng(3).integers(0, 4, size=600)


@pytest.mark.slow
@pytest.mark.parametrize("method", FIXED)
def test_a_weight_of_two_counts_as_two_rows_and_one_of_zero_as_none(method):
    made = FederatedClassifier(
        method, {**FIXED[method], "ggeur.privacy.min_samples": 1}
    )
    found = made.fit(X, y, SITE, CAMERA, WEIGHTS).decision_function(X)
    clients = made.clients_
    repeated = [part.repeat(WEIGHTS, 0) for part in (X, y, SITE, CAMERA)]
    expected = made.fit(*repeated).decision_function(X)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert made.clients_ == clients
    assert not np.allclose(found, made.fit(X, y, SITE, CAMERA).decision_function(X))


def test_left_out_rows_are_counted_by_their_weights(tmp_path):
    weights = np.random.default_rng(4).uniform(0.5, 1.5, size=600)
    made = FederatedClassifier("ncm").fit(X, y, SITE, sample_weight=weights)
    assert made.results_.closed_form.details["temperature_rows"] == 600
    tuned = FederatedClassifier("lda").fit(X, y, SITE, sample_weight=weights)
    details = tuned.results_.closed_form.details
    found = details["candidates"]
    assert details["scored_rows"] == 600
    assert all(
        one["accuracy"] == pytest.approx(one["hits"] / weights.sum()) for one in found
    )
    assert any(one["hits"] % 1 for one in found)
    tuned.save(tmp_path / "head")
    read = FederatedClassifier.load(tmp_path / "head")
    assert np.array_equal(read.predict_proba(X), tuned.predict_proba(X))
    plainly = FederatedClassifier("ncm").fit(X, y, SITE)
    hashes = {r.results_.provenance.data.sha256 for r in (made, tuned, plainly)}
    assert len(hashes) == 2, "equal weights, or none"


def test_thresholds_count_rows_never_weights():
    few = np.concatenate([np.flatnonzero(y == c)[:n] for c, n in ((0, 40), (2, 12))])
    weights, clients = np.where(y[few] == 2, 100.0, 0.2), np.arange(len(few)) % 4
    made = FederatedClassifier("ncm")
    with pytest.warns(UserWarning, match="1 of 2 classes cannot be predicted, 2: no"):
        made.fit(X[few], y[few], clients, sample_weight=weights)
    assert 2 not in made.predict(X)


@pytest.mark.parametrize(
    ("method", "settings", "named"),
    [
        ("auto", {}, "closed_form auto, space, augmentation, training"),
        ("mixture", {}, "closed_form mixture"),
        ("fedavg", {}, "training"),
        ("lda", {"ggeur.statistics": "compressed"}, "statistics compressed"),
        ("lda", {"ggeur.personal.head": "means"}, "personal"),
    ],
)
def test_weights_are_refused_by_name_elsewhere(method, settings, named):
    with pytest.raises(ConfigError, match=named) as caught:
        FederatedClassifier(method, settings).fit(X, y, SITE, sample_weight=WEIGHTS)
    assert "only ggeur.closed_form lda, ncm, ridge t" in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.ones(599), "599"),
        (-np.ones(600), "Negative"),
        (np.full(600, np.nan), "NaN"),
        (np.full(600, 1 / 600), "all weights sum to 1, but there are 10 classes"),
        (np.full(600, 0.025), "sum to 15"),
    ],
)
def test_wrong_weights_are_refused(weights, said):
    with pytest.raises(ValueError, match=said):
        FederatedClassifier("lda").fit(X, y, SITE, sample_weight=weights)


def test_logarithms_of_probabilities():
    made = fitted("lda", shared=True)
    with np.errstate(all="raise"):  # the head is sure of rows that are far out
        found = made.predict_log_proba(1000 * X[:9])
    assert found.shape == (9, 10)
    assert np.array_equal(
        np.exp(found).round(5), made.predict_proba(1000 * X[:9]).round(5)
    )
    assert found.min() == pytest.approx(np.log(0.001 / 10))


@pytest.mark.parametrize("method", ["lda", "mixture"])
def test_decisions_are_logits_of_each_row_alone(method):
    made = fitted(method, shared=True)
    found = made.decision_function(X[:40])
    assert found.shape == (40, 10)
    assert found.dtype == np.float64
    shares = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)
    expected = made.predict_proba(X[:40])
    np.testing.assert_allclose(0.999 * shares + 0.0001, expected, atol=1e-5)
    alone = np.concatenate([made.decision_function(row[None]) for row in X[:40]])
    np.testing.assert_allclose(found, alone, rtol=1e-12, atol=1e-11)


def test_two_classes_have_one_decision():
    made = FederatedClassifier("lda").fit(X, np.where(y > 4, "high", "a low"), SITE)
    found = made.decision_function(X)
    assert found.shape == (600,)
    assert np.array_equal(found > 0, made.predict(X) == "high")


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_clients_may_be_dates(unit):
    days = np.array(["2024-01-31", "2024-02-01"], dtype=f"datetime64[{unit}]")
    here = days[np.arange(600) % 2]
    made = FederatedClassifier("ncm").fit(X, y, here)
    assert list(map(str, made.clients_)) == [
        f"{day}{' 00:00:00' if unit == 'ns' else ''}" for day in days.astype("M8[D]")
    ]
    with pytest.raises(ValueError, match="is unknown; clients_ lists the clients"):
        made.predict(X, days[:1].astype(int).repeat(600))


@pytest.mark.slow
def test_a_grid_goes_over_single_settings():
    search = GridSearchCV(
        FederatedClassifier("lda", settings={"ggeur.lda.shrinkage": 0.2}),
        {"settings__ggeur.lda.shrinkage": np.linspace(0.1, 0.9, 2)},
        cv=2,
    ).fit(X[:200], y[:200])
    assert len(set(search.cv_results_["mean_test_score"])) == 2
    with pytest.raises(ValueError, match="nonsense"):
        FederatedClassifier().set_params(nonsense=1)


@pytest.mark.parametrize(
    ("settings", "named", "said"),
    [
        ("abc", "settings__a", "must be a dict of settings"),
        (None, "settings__", "'settings__' names no setting"),
    ],
)
def test_a_single_setting_needs_a_dict_and_a_name(settings, named, said):
    made = FederatedClassifier(settings=settings)
    with pytest.raises(ValueError, match=said):
        made.set_params(random_state=3, **{named: 3})
    assert (made.settings, made.random_state) == (settings, 0)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([1, "a"], "row 1, 'a', is no number like row 0"),
        (["a", None], "row 1, None, is no label"),
        (["a", ""], "row 1, '', is empty"),
    ],
)
def test_labels_of_several_types_and_missing_ones_are_named(labels, told):
    given = np.array(labels, object)[np.arange(60) % 2]
    with pytest.raises(DataError, match=told):
        FederatedClassifier("lda").fit(X[:60], given)


def test_bytes_are_texts_as_in_files():
    given = np.array([b"a", b"b"])[y[:200] % 2]
    made = FederatedClassifier("lda").fit(X[:200], given)
    assert made.classes_.tolist() == ["a", "b"]
    assert made.score(X[:200], given) > 0.9


@pytest.mark.parametrize("clients", [SITE, 3])
def test_settings_of_files_are_named_as_without_effect(clients):
    files = {"data.root": "/etc", "outdir": "here"}
    with pytest.warns(UserWarning, match="no effect"):
        made = FederatedClassifier("lda", files).fit(X, y, clients)
    said = [note for note in made.results_.notes if "no effect" in note]
    assert said == [
        "the data were handed in, so these have no effect: data.root",
        "outdir has no effect, since fit writes no files",
    ]


@pytest.mark.parametrize(
    "labels",
    [np.array(list("abcdefghij"))[y], y + 0.0, y > 4, y * 10 - 3],
    ids=["str", "float", "bool", "int"],
)
def test_labels_of_any_kind_come_back(labels, tmp_path):
    made = FederatedClassifier("lda").fit(X, labels, clients=SITE)
    found = made.predict(X)
    assert found.dtype == labels.dtype
    assert (found == labels).mean() > 0.9
    made.save(tmp_path / "head")
    read = FederatedClassifier.load(tmp_path / "head")
    assert (read.predict(X) == found).all()
    assert read.classes_.dtype.kind == made.classes_.dtype.kind


def test_masked_entries_are_refused():
    rows, labels = np.ma.masked_array(X), np.ma.masked_array(y)
    made = FederatedClassifier("lda").fit(rows, labels, clients=SITE)
    rows[3, 2] = labels[5] = np.ma.masked
    with pytest.raises(ValueError, match="X: row 3 has a masked entry"):
        FederatedClassifier("lda").fit(rows, y, clients=SITE)
    with pytest.raises(ValueError, match="y: row 5 has a masked entry"):
        FederatedClassifier("lda").fit(X, labels, clients=SITE)
    with pytest.raises(ValueError, match="X: row 3 has a masked entry"):
        made.predict(rows)


@pytest.mark.slow
def test_names_of_columns_are_kept(tmp_path):
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
    made = FederatedClassifier("lda").fit(frame, y)
    assert list(made.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        made.predict(frame.rename(columns={"pixel0": "other"}))
    made.save(tmp_path / "head")
    read = FederatedClassifier.load(tmp_path / "head")
    assert list(read.feature_names_in_) == list(frame.columns)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "ggeur", "fedavg", "lda"])
def test_a_yaml_run_of_the_same_rows_has_the_same_bits(method, tmp_path):
    args = [{"alpha": 0.5}]
    made = FederatedClassifier(method, splitter="lda", splitter_args=args)
    made.fit(X, y, clients=5)
    folder = tmp_path / "rows"
    folder.mkdir()
    np.savez(folder / "train.npz", features=X, labels=y)
    np.savez(folder / "test.npz", features=X[:10], labels=y[:10])
    chosen = {
        "auto": {},
        "ggeur": {"steps": [1], "geometry": "class", "step1_size": -1},
        "fedavg": {"steps": [], "base_method": "fedavg"},
        "lda": {"closed_form": "lda"},
    }[method]
    trained = {"closed_form": "none", "init": "random", "keep": "trained"}
    settings = chosen if method == "auto" else {**trained, **chosen}
    there = run(
        "ggeur_own_embeddings.yaml",
        overrides={
            "data.root": str(folder),
            "data.splitter": "lda",
            "data.splitter_args": args,
            "federate.client_num": 5,
            **{f"ggeur.{k}": v for k, v in settings.items()},
        },
    )
    assert np.array_equal(made.predict_proba(X), there.predict_proba(X))
    last = there.rounds[-1] if there.rounds else there.closed_form
    assert made.score(X[:10], y[:10]) == last.avg


@pytest.mark.slow
@pytest.mark.parametrize("copied", [pickle, joblib, "skops", "save"])
@pytest.mark.parametrize("method", ["lda", "fedavg", "local"])
def test_a_copy_predicts_the_same(method, copied, tmp_path):
    made = fitted(method, shared=True)
    whose = "south" if method == "local" else None
    if copied == "save":
        made.save(tmp_path / "head")
        copy = FederatedClassifier.load(tmp_path / "head")
    elif copied is joblib:
        joblib.dump(made, tmp_path / "file")
        copy = joblib.load(tmp_path / "file")
    elif copied == "skops":
        from skops import io  # it imports all of scipy.stats and scikit-learn

        data = io.dumps(made)
        kinds = io.get_untrusted_types(data=data)
        assert kinds == ["federatedscope_ggeur.estimator.FederatedClassifier"]
        copy = io.loads(data, trusted=kinds)
    else:
        copy = pickle.loads(pickle.dumps(made))
    assert np.array_equal(copy.predict_proba(X, whose), made.predict_proba(X, whose))
    assert copy.get_params() == made.get_params()
    assert copy.results_.final == made.results_.final


@pytest.mark.parametrize("name", ["../other", "/tmp/other", "a/../../other"])
def test_a_stored_state_writes_nothing_elsewhere(name):
    state = fitted("lda").__getstate__()
    state["results_"][name] = np.zeros(1, np.uint8)
    with pytest.raises(DataError, match="other"):
        FederatedClassifier().__setstate__(state)


@pytest.mark.slow
@pytest.mark.parametrize("poor", [0, 1, 2])
@pytest.mark.parametrize("method", ["lda", "ridge"])
def test_a_client_below_the_threshold_takes_part_with_weights(method, poor):
    site = np.arange(600) % 3
    kept = (site != poor) | (np.arange(600) < 12)
    weights = np.ones(kept.sum())
    plain, weighted = (
        FederatedClassifier(method).fit(X[kept], y[kept], site[kept], **more)
        for more in ({}, {"sample_weight": weights})
    )
    assert np.array_equal(weighted.predict_proba(X), plain.predict_proba(X))


@pytest.mark.slow
@pytest.mark.parametrize("routed", [True, False])
def test_clients_reach_it_in_a_pipeline(routed):
    made = make_pipeline(StandardScaler(), FederatedClassifier("lda"))
    with sklearn.config_context(enable_metadata_routing=routed):
        step = "" if routed else "federatedclassifier__"
        made.fit(X, y, **{f"{step}clients": SITE, f"{step}domains": CAMERA})
    last = made[-1]
    assert last.n_features_in_ == 64
    assert len(last.clients_) == 6
    assert last.clients_[:2] == [("east", "new"), ("east", "old")]
    assert last.results_.final.accuracy == {"new": None, "old": None}
    assert made.score(X, y) > 0.9


@pytest.mark.slow
def test_one_holder_has_no_threshold_and_clients_have_one():
    few = np.flatnonzero((y < 2) | (np.cumsum(y == 2) <= 3) & (y == 2))
    alone = FederatedClassifier("lda").fit(X[few], y[few])
    rare = X[few][y[few] == 2]
    assert (alone.predict(rare) == 2).all()
    with pytest.warns(UserWarning, match="1 of 3 classes cannot be predicted, 2: no"):
        apart = FederatedClassifier("lda").fit(X[few], y[few], clients=SITE[few])
    assert 2 not in apart.predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lower = {"ggeur.privacy.min_samples": 1}
        FederatedClassifier("lda", lower).fit(X[few], y[few], clients=SITE[few])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "lda"])
def test_clients_with_two_rows_each_are_told_what_to_do(method):
    rows, labels, two_each = X[:60], y[:60], np.arange(60) // 2
    with pytest.raises(StatisticsError, match="no client has 5 rows of any") as error:
        FederatedClassifier(method).fit(rows, labels, clients=two_each)
    assert "settings={'ggeur.privacy.min_samples': 1}" in str(error.value)
    assert "closed_form" not in str(error.value)
    lower = {"ggeur.privacy.min_samples": 1}
    made = FederatedClassifier(method, lower).fit(rows, labels, clients=two_each)
    assert made.score(rows, labels) > 0.9


@pytest.mark.slow
def test_where_no_class_may_be_sent_auto_trains_and_says_what_this_tells():
    with pytest.warns(UserWarning, match="updates of clients with few rows can reveal"):
        made = FederatedClassifier().fit(X[:120], y[:120], clients=np.arange(120) // 8)
    assert made.results_.final.kept == Kept("trained", "absent", None, None)
    assert made.results_.round0.closed_form is None
    assert made.score(X[120:], y[120:]) > 0.8


@pytest.mark.slow
def test_heads_of_ones_own():
    settings = {"ggeur.personal.head": "means"}
    made = FederatedClassifier("auto", settings).fit(X, y, clients=SITE)
    by_row = made.predict_proba(X, SITE)
    south = made.predict_proba(X, "south")
    assert np.array_equal(by_row[SITE == "south"], south[SITE == "south"])
    with pytest.raises(ValueError, match="'west' is unknown; clients_ lists the"):
        made.predict(X, "west")
    with pytest.raises(ValueError, match="2 labels for 600 rows"):
        made.predict(X, ["south", "north"])


@pytest.mark.parametrize("keep", ["best", "average"])
def test_heads_of_ones_own_beside_a_mixture(keep, tmp_path):
    """They have one component a class, it has one for each class and client."""
    draws, site = np.random.default_rng(0), np.arange(400) % 4
    labels = np.arange(400) // 4 % 3
    rows = 3 * draws.normal(size=(4, 3, 6))[site, labels] + draws.normal(size=(400, 6))
    settings = {"ggeur.personal.head": "means", "ggeur.keep": keep}
    made = FederatedClassifier(settings=settings).fit(rows, labels, site, domains=site)
    assert made.results_.round0.closed_form.details["closed_form"] == "mixture"
    made.save(tmp_path / "head")
    again = FederatedClassifier.load(tmp_path / "head")
    for one in (made, again):
        assert one.score(rows, labels, clients=site) > 0.9
        assert one.score(rows, labels) > 0.9


@pytest.mark.slow
def test_models_of_ones_own_are_asked_for_by_label():
    made = fitted("local", shared=True)
    with pytest.raises(ValueError, match=f"such as clients='{made.clients_[0]}'"):
        made.predict(X)
    assert made.predict(X, made.clients_[0]).shape == y.shape
    found = made.decision_function(X, clients=SITE)
    assert np.array_equal(found.argmax(axis=1), made.predict(X, clients=SITE))
    one, weights = SITE == "south", 1.0 + (y < 3)
    found = made.score(X, y, weights, clients="south")
    hits = made.predict(X, "south") == y
    assert found == pytest.approx(np.average(hits, weights=weights))
    assert made.score(X[one], y[one], clients=SITE[one]) > 0.9


@pytest.mark.slow
def test_cross_validation_asks_for_the_clients_of_scores():
    with sklearn.config_context(enable_metadata_routing=True):
        made = FederatedClassifier("local").set_score_request(clients=True)
        found = cross_val_score(made, X, y, cv=2, params={"clients": SITE})
    assert found.min() > 0.7


def test_a_single_holder_is_not_asked_for():
    assert fitted("local").score(X, y) > 0.9


@pytest.mark.slow
def test_a_fit_leaves_no_trace(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(5)
    before = torch.get_rng_state(), torch.get_num_threads(), logging.root.level
    of_numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
    FederatedClassifier("fedavg").fit(X, y, SITE)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), logging.root.level)
    assert np.random.get_state()[1].tolist() == of_numpy  # noqa: NPY002
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_the_table_says_once_that_nothing_is_scored():
    text = results_table(fitted(shared=True).results_)
    assert text.count("no test rows") == 1
    assert "AVG" not in text


FAR = np.where(y[:, None] == 4, 1e30, X)


@pytest.mark.parametrize(
    ("given", "fit", "error", "message"),
    [
        (["wrong"], {}, ConfigError, "method: 'wrong' is unknown; known: auto, ggeur"),
        (["lda"], {"domains": [1, 2]}, DataError, r"domains: must be of shape \(600"),
        (["lda"], {"clients": 0}, ConfigError, "clients: must be a number from 1, or"),
        (["lda"], {"y": np.zeros(600)}, ValueError, "one class"),
        (["lda"], {"X": np.where(X[0, 5] == X, np.nan, X)}, ValueError, "NaN"),
        (["lda"], {"X": FAR}, DataError, r"holds 1e\+30, .* first such row is 4"),
        (
            ["lda", {"ggeur.lda.shrink": 1}], {}, ConfigError,
            r"^wrong settings:\s+ggeur\.lda\.shrink: ",
        ),
        (["lda", "ggeur.space raw"], {}, ConfigError, "settings: must be a dict of se"),
        (["lda", None, "iid"], {}, ConfigError, "splitter: needs the number of clie"),
        (
            ["mine", {"ggeur.plugins": ["my_parts"]}], {}, ConfigError,
            "(?s)the settings name 'my_parts'.*in Python: import it first",
        ),
    ],
    ids=range(10),
)  # fmt: skip
def test_what_is_wrong_is_named(given, fit, error, message):
    names = "method", "settings", "splitter"
    made = FederatedClassifier(**dict(zip(names, given)))
    with pytest.raises(error, match=message):
        made.fit(**{"X": X, "y": y, "clients": SITE, **fit})


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="63 features"):
        fitted("lda").predict(X[:, :63])


def test_save_refuses_what_it_cannot_read_again(tmp_path):
    made = fitted("lda")
    with pytest.raises(NotFittedError):
        FederatedClassifier().save(tmp_path / "head")
    made.save(tmp_path / "head")
    with pytest.raises(FileExistsError, match="exists already"):
        made.save(tmp_path / "head")
    for kind in ("datetime64[D]", "datetime64[ns]"):  # lists of the latter hold int
        made.classes_ = made.classes_.astype(kind)
        with pytest.raises(TypeError, match="cannot be saved"):
            made.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["head"]


def test_settings_are_saved_with_it(tmp_path):
    made = FederatedClassifier("lda", FIXED["lda"]).fit(X, y)
    made.save(tmp_path / "head")
    path = tmp_path / "head" / "classifier.json"
    known = json.loads(path.read_text())
    # Earlier releases wrote each setting by its own name, too.
    known["parameters"] |= made.get_params()
    for text in (path.read_text(), json.dumps(known)):
        path.write_text(text)
        read = FederatedClassifier.load(tmp_path / "head")
        assert read.get_params() == made.get_params()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parameters": {"other": 1}}'])
def test_a_damaged_file_is_named(tmp_path, text):
    fitted("lda").save(tmp_path / "head")
    path = tmp_path / "head" / "classifier.json"
    assert json.loads(path.read_text())["classes"] == list(range(10))
    path.write_text(text)
    with pytest.raises(
        DataError, match=r"classifier\.json.*: FederatedClassifier.save did not"
    ):
        FederatedClassifier.load(tmp_path / "head")
    with pytest.raises(DataError, match=r"classifier\.json"):
        FederatedClassifier.load(tmp_path / "nowhere")


OLDER = """\
import sklearn.utils.validation
del sklearn.utils.validation.validate_data
import federatedscope_ggeur
print(federatedscope_ggeur.run.__name__)
federatedscope_ggeur.FederatedClassifier
"""


@pytest.mark.slow
def test_an_older_scikit_learn_is_named():
    done = python("-c", OLDER)
    assert done.stdout == "run\n"
    assert "FederatedClassifier needs scikit-learn 1.6 or newer" in done.stderr


@pytest.mark.parametrize("seed", [7, np.int64(7)])
def test_the_run_has_the_seed_that_was_given(seed):
    x, y = np.eye(4)[[0, 1] * 6], [0, 1] * 6

    def seed_of(state):
        made = FederatedClassifier("lda", random_state=state).fit(x, y)
        return made.results_.seed

    assert seed_of(seed) == 7
    drawn, state = np.random.RandomState(7), np.random.RandomState(7)
    for _ in range(2):
        assert seed_of(state) == drawn.randint(2**31 - 1)
    assert seed_of(None) != seed_of(None)
