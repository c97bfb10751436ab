"""Heads in closed form, by whole runs of round 0 alone."""

import numpy as np
import pytest
import torch
from outcomes import finished
from safetensors.torch import load
from torch.nn import functional as F

from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.closed_form.keeping import (
    LEAST_VALIDATION,
)
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.closed_forms import temperatures
from federatedscope_ggeur.models.heads import MixtureHead, MLPHead
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.reporting import Kept, results_table, write_run


def test_a_closed_form_alone_has_no_rounds(config):
    results = run(config(*LDA_OF_ALL))
    assert results.rounds == []
    assert results.final.rounds == []
    solved = results.round0.closed_form
    assert results.final.head == "closed_form"
    assert solved.method == "lda"
    assert results.final.accuracy == solved.accuracy
    assert results.round0.geometry_bytes_down == 0
    assert 0 < solved.details["shrinkage"] < 1
    assert "closed form lda" in results_table(results)


# Runs that leave the better one of two heads.
#
# By what a head is chosen is said by test_choice.py.


START = ["ggeur.init", "closed_form"]
BEST = [*START, "ggeur.keep", "best"]
#: By lds labels and domains would be confounded.
IID = ["data.splitter", "iid", "data.splitter_args", [], "federate.client_num", 6]
FEW = ["ggeur.privacy.min_samples", 3]
#: Nobody sends most of the classes.
ABSENT = [*IID, "ggeur.privacy.min_samples", 6]
VALIDATED = ["data.splits", [0.5, 0.2, 0.3], "eval.split", ["test", "val"]]
KINDS = {
    "auto": ["ggeur.closed_form", "auto"],
    "lda": ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3],
    "ridge": ["ggeur.closed_form", "ridge"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "validated"), [("lda", True), ("ridge", False), ("auto", True)]
)
def test_the_head_that_is_left_is_one_of_the_two(config, kind, validated):
    common = [*IID, *FEW, *VALIDATED] if validated else ABSENT
    going, results = finished(config(*KINDS[kind], *BEST, *common))
    kept = results.final.kept
    _, alone = finished(config(*KINDS[kind], *common))
    assert results.closed_form.accuracy == alone.final.accuracy
    if kept.head == "closed_form":
        assert results.final.head == "closed_form"
        assert results.final.accuracy == alone.final.accuracy
        rows = going.data.clients[0].test.features
        same = results.predict_proba(rows) == alone.predict_proba(rows)
        assert same.all()
    else:
        assert results.final.head == "trained"
        if validated:
            assert kept.by == "validation"
            assert kept.trained > kept.closed_form
        else:
            assert kept.by == "absent"
    if not validated:
        assert results.round0.closed_form.details["absent_rows"] > 0
        absent = results.final.probabilities.absent
        assert absent.classes == results.round0.closed_form.details["left_out"]
    # What was scored before it was left is what is scored afterwards.
    left = load(going.history.head_bytes()).values()
    assert sum(p.numel() for p in results.model.parameters()) == sum(
        t.numel() for t in left
    )


AVERAGE = [*KINDS["auto"], *START, "ggeur.keep", "average", *IID, *FEW]


def test_nothing_is_trained_where_left_out_rows_are_right(config):
    results = run(config(*AVERAGE))
    assert results.final.kept == Kept("closed_form", "right", None, None)
    assert results.rounds == []
    details = results.round0.closed_form.details
    assert (details["wrong_rows"], "hidden_units" in details) == (0, False)
    assert "right on nearly all left-out rows" in results_table(results)


def persons(apart, last=99):
    """Rows of 12 persons, whose classes lie elsewhere for each, so far `apart`; a third
    for the test. Of the last class each has at most so many rows."""
    draw = np.random.default_rng(0).normal
    size = (12, 6, 12, 8)  # persons, classes, rows, columns
    own = draw(size=(12, 1, 1, 8)) + 0.5 * draw(size=(12, 6, 1, 8))
    rows = 2 * draw(size=(1, 6, 1, 8)) + apart * own + draw(size=size)
    who, labels, number = (part.ravel() for part in np.indices(size[:3]))
    rows = rows.reshape(-1, 8)
    kept = (labels < 5) | (number < last)
    rows, labels, who, number = (p[kept] for p in (rows, labels, who, number))
    return FederatedData.from_arrays(rows, labels, who, test=number % 3 == 0)


@pytest.mark.parametrize(
    ("apart", "method", "by"),
    [
        (1.2, "fedavg", "log_loss"),
        (1.2, "fedprox", "log_loss"),
        (2.5, "fedavg", "apart"),
    ],
)
def test_a_mean_with_an_mlp_loses_nothing_where_clients_differ(apart, method, by):
    """The MLP, which knows no clients, is behind the mixture by client. FedProx changes
    training, so its MLP learns alone."""
    one, mean = {"ggeur.closed_form": "auto"}, [*START, "ggeur.keep", "average"]
    mean = {**one, **dict(zip(mean[::2], mean[1::2])), "ggeur.base_method": method}
    common = {"federate.total_round_num": 20, "train.optimizer.momentum": 0.9}
    one_shot, both, trained = (
        run({**common, **settings, "ggeur.steps": []}, persons(apart))
        for settings in (one, mean, {"ggeur.mlp_hidden_dim": 256})
    )
    assert both.final.kept.by == by
    assert (both.round0.offsets_bytes_down > 0) == (by == "log_loss")
    assert both.final.avg >= one_shot.final.avg > trained.final.avg + 0.01


def test_of_a_class_that_nobody_sent_the_mean_has_what_the_mlp_knows():
    common = {"federate.total_round_num": 20, "train.optimizer.momentum": 0.9}
    common |= {"ggeur.closed_form": "auto", "ggeur.steps": [1]}
    data = persons(1.2, last=6)
    mean = {"ggeur.init": "closed_form", "ggeur.keep": "average"}
    mean, one_shot = run({**common, **mean}, data), run(common, data)
    assert mean.final.kept == Kept("average", "log_loss", None, None)
    assert mean.model.known.tolist() == [1, 1, 1, 1, 1, 0]
    tests = [client.test for client in data.clients]
    x, labels = (
        torch.cat([getattr(t, n) for t in tests]) for n in ("features", "labels")
    )
    hits = torch.tensor(mean.predict(x)) == labels
    assert hits[labels == 5].double().mean() > 0.5
    assert mean.final.avg > one_shot.final.avg + 0.01
    assert mean.round0.geometry_bytes_down > 0


HELD_OUT = {**dict(zip(AVERAGE[:6:2], AVERAGE[1:6:2])), "ggeur.steps": []}
HELD_OUT |= {"federate.total_round_num": 10, "train.local_update_steps": 5}
HELD_OUT |= {"train.optimizer.momentum": 0.9}
FAST = {"train.optimizer.lr": 0.5}


def of_three_domains(own):
    """Rows of three classes. At least the share `own` of each is in one domain."""
    draw, place = np.random.default_rng(0).normal, np.arange(900)
    labels, other = place % 3, np.random.default_rng(1).integers(0, 3, 900)
    domains = np.where(np.random.default_rng(2).random(900) < own, labels, other)
    rows = 2 * draw(size=(3, 8))[labels] + 2 * draw(size=(3, 8))[domains]
    rows += 2 * draw(size=(900, 8))
    names, test = np.array(["a", "b", "c"])[domains], place // 3 % 3 == 0
    return FederatedData.from_arrays(rows, labels, domains, domains=names, test=test)


@pytest.mark.parametrize(("own", "least", "most"), [(0.6, 0.25, 0.5), (1.0, 1.0, 1.0)])
def test_of_domains_confounded_in_part_or_without_common_classes_heads_have_half(
    own, least, most, tmp_path
):
    """Rows of the domains cannot choose the shares."""
    settings = {**HELD_OUT, "ggeur.steps": [1], "ggeur.step1_size": 20}
    data, point = of_three_domains(own), tmp_path / "point"
    results = run({**settings, "federate.save_to": str(point)}, data)
    assert least <= results.round0.closed_form.details["confounded_share"] <= most
    assert results.final.kept == Kept("average", "confounded", None, None)
    assert results.model.share == 0.5
    # The trained head learns alone, also from draws.
    assert results.model.offset == 0
    assert results.round0.geometry_bytes_down > 0
    again = run({**settings, "federate.restore_from": str(point)}, data)
    assert again.final.head_sha256 == results.final.head_sha256


def of_five(rows, labels):
    """Rows of five clients; each third row is for the test."""
    place = np.arange(len(labels))
    return FederatedData.from_arrays(rows, labels, place // 3 % 5, test=place % 3 == 0)


def curved_classes():
    """Rows of four classes whose bounds are curved."""
    rows = np.random.default_rng(0).normal(size=(3000, 6))
    curved = rows[:, 0] * rows[:, 1] + rows[:, 2] * rows[:, 3] > 0
    return rows, curved + 2 * (rows[:, 4] > 0)


def test_rows_held_out_give_the_mean_its_temperature():
    """Its MLP is too sure."""
    rows, labels = curved_classes()
    results = run({**HELD_OUT, **FAST}, of_five(rows, labels))
    assert results.final.kept == Kept("average", "log_loss", None, None)
    assert results.final.calibrated_by == "held_out"
    chosen = results.calibrated.details
    assert chosen["rows"] == 300
    assert results.model.temperature == pytest.approx(chosen["temperature"])
    assert chosen["temperature"] > 1
    assert results.model.share == chosen["share"] < 0.5
    assert results.model.offset == 1
    table = results_table(results)
    assert chosen["share"] == 0
    assert "kept: the trained head, which adds to the scores of the head in " in table
    assert "calibrated by rows held out of training" in table
    assert results.final.avg > results.round0.closed_form.avg + 0.3
    assert f"{100 * results.final.avg:.2f}" in table.split("AVG")[1].splitlines()[0]
    right = results.predict(rows) == labels
    assert right[::3].mean() == pytest.approx(results.final.avg)
    probabilities = results.final.probabilities
    assert probabilities.after.ece < probabilities.before.ece


def of_twelve(rows):
    """`rows` of each of twelve persons and ten classes; of the last two at most 6."""
    draw = np.random.default_rng(0).normal
    labels, who, number = (part.ravel() for part in np.indices((10, 12, rows)))
    rows = 2 * draw(size=(10, 8))[labels] + draw(size=(12, 8))[who]
    rows += 2 * draw(size=rows.shape)
    kept = (labels < 8) | (number < 6)
    return FederatedData.from_arrays(
        rows[kept], labels[kept], who[kept], test=(number % 3 == 0)[kept]
    )


@pytest.mark.parametrize(
    ("data", "method", "by"),
    [
        (of_twelve(6), "fedavg", "absent"),
        (of_twelve(12), "fedavg", "log_loss"),
        (of_five(*curved_classes()), "fedprox", "log_loss"),
    ],
    ids=["nobody sent any class", "nobody sent two", "without offsets"],
)
def test_rows_are_held_out_of_other_mlps_as_well(data, method, by):
    sent = {"ggeur.privacy.min_samples": 5, "ggeur.base_method": method}
    results = run({**HELD_OUT, **FAST, **sent}, data)
    assert results.final.calibrated_by == "held_out"
    assert results.model.offset == 0
    assert results.model.temperature != 1
    assert results.final.kept.by == by
    before = results.final.probabilities.before
    assert results.final.probabilities.after.log_loss < before.log_loss
    tests = [client.test for client in data.clients if len(client.test)]
    hits = [results.predict(t.features) == t.labels.numpy() for t in tests]
    scored = results.calibrated or results.rounds[-1]
    assert np.concatenate(hits).mean() == pytest.approx(scored.avg, abs=1e-9)


def test_rows_that_are_all_right_do_not_make_probabilities_surer_and_surer():
    """Without a prior each sharper temperature would have less log-loss."""
    draw, place = np.random.default_rng(0), np.arange(2400)
    labels = draw.integers(0, 3, 2400)
    rows = 4 * draw.normal(size=(3, 6))[labels] + draw.normal(size=(2400, 6))
    data = FederatedData.from_arrays(
        rows, labels, place % 5, test=place % 3 == 0, validation=place % 6 == 1
    )
    steps = {"federate.total_round_num": 10, "train.local_update_steps": 5}
    results = run({**steps, "ggeur.steps": [], "eval.split": ["test", "val"]}, data)
    assert results.rounds[-1].metrics["val_acc"] == 1
    assert 0.3 < results.temperature_scaling.temperature < 1


def test_a_restored_run_holds_the_same_rows_out_if_nobody_sent_statistics(tmp_path):
    settings = {**HELD_OUT, "ggeur.privacy.min_samples": 5}
    data, point = of_twelve(6), tmp_path / "point"
    first = run({**settings, "federate.save_to": str(point)}, data)
    again = run({**settings, "federate.restore_from": str(point)}, data)
    assert again.final.calibrated_by == "held_out"
    assert again.temperature_scaling.loss == first.temperature_scaling.loss
    assert again.final.head_sha256 == first.final.head_sha256


def test_rows_held_out_may_be_the_only_ones_of_their_class():
    """Without them the one-shot head alone has no score for the class."""
    rows, labels = curved_classes()
    trained = np.flatnonzero(np.arange(len(labels)) % 3)
    labels[trained[:60]] = 4 + np.arange(60)
    results = run({**HELD_OUT, "ggeur.privacy.min_samples": 1}, of_five(rows, labels))
    assert results.calibrated.details["rows"] == 300
    assert results.calibrated.details["share"] < 1


@pytest.mark.parametrize(
    ("classes", "by", "units"), [(20, "log_loss", 256), (21, "withheld", None)]
)
def test_beside_rows_of_many_columns_the_classes_decide_for_an_mlp(classes, by, units):
    """A linear head is averaged only where rows are withheld. Neither has draws."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, classes, 1800)
    rows = 1.2 * draw.normal(size=(classes, 161))[labels]
    rows += 4 * draw.normal(size=rows.shape)
    # Some clients have too few rows of some classes to send them.
    settings = {**HELD_OUT, **FAST, "ggeur.steps": [1], "ggeur.privacy.min_samples": 9}
    results = run(settings, of_five(rows, labels))
    assert results.final.kept.by == by
    details = results.round0.closed_form.details
    assert details.get("hidden_units") == units
    assert details["start"]["closed_form"] == ("none" if units else "lda")
    assert type(results.model.trained) is (MLPHead if units else MixtureHead)
    assert results.round0.geometry_bytes_down == 0


def normal_classes(apart=4.0):
    """Rows of four classes that are normal with one covariance."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 2400)
    means = apart * draw.normal(size=(4, 6))
    return means[labels] + draw.normal(size=(2400, 6)), labels


def test_the_head_that_is_left_may_be_the_mean_of_both():
    """Of few columns an MLP is trained, from random weights, on clients' own rows."""
    rows, labels = normal_classes(2.0)
    results = run({**HELD_OUT, **FAST, "ggeur.steps": [1]}, of_five(rows, labels))
    assert results.final.kept == Kept("average", "columns", None, None)
    assert results.final.calibrated_by is None
    assert "kept: the mean of the probabilities of both heads" in results_table(results)
    assert type(results.model.trained) is MLPHead
    assert results.round0.closed_form.details["start"]["closed_form"] == "none"
    assert results.round0.geometry_bytes_down == 0
    # The MLP has learnt beside the one-shot head.
    assert results.model.offset == 1
    assert results.model.share == 0.5
    assert results.round0.offsets_bytes_down > 0


@pytest.mark.parametrize(
    ("classes", "head"), [(normal_classes, "closed_form"), (curved_classes, "average")]
)
def test_wrong_labels_give_the_head_a_floor(classes, head):
    """Each eighth row has a label that is drawn, wherever the row lies."""
    (rows, labels), draw = classes(), np.random.default_rng(1)
    drawn = draw.integers(0, 4, len(labels))
    labels = np.where(draw.random(len(labels)) < 1 / 8, drawn, labels)
    results = run({**HELD_OUT, "federate.total_round_num": 30}, of_five(rows, labels))
    assert results.final.kept == Kept(head, "log_loss", None, None)
    told = results.final.probabilities
    assert told.floor in (0.1, 0.2)
    left = results.calibrated if head == "average" else results.round0.closed_form
    assert left.details["floor"] == told.floor
    assert f"; {told.floor:.0%} is shared equally by all classes" in results_table(
        results
    )
    # No probability is below it; see `Model.probabilities` for the rest.
    least = (0.001 + 0.999 * told.floor) / 4
    assert results.predict_proba(rows).min() == pytest.approx(least, rel=0.2)
    assert results.predict_proba(rows).min() >= least * 0.999
    assert told.after.ece < 0.05
    assert told.after.log_loss < told.before.log_loss


def test_a_head_that_starts_from_one_with_a_floor_has_the_temperature_without_it():
    """A floor goes with a sharper temperature; the trained head has no floor."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 20, 1500)
    rows = 1.5 * draw.normal(size=(20, 170))[labels] + 3 * draw.normal(size=(1500, 170))
    wrong = draw.random(1500) < 0.2
    labels = np.where(wrong, draw.integers(0, 20, 1500), labels)
    labels[np.arange(1500) % 250 < 4] = 20  # nobody has as many as he may send
    sent = {"ggeur.privacy.min_samples": 10, "ggeur.steps": []}
    steps = {"federate.total_round_num": 3, "train.local_update_steps": 5}
    settings = {"ggeur.closed_form": "auto", "ggeur.init": "closed_form"}
    best, average = (
        run({**settings, **sent, **steps, "ggeur.keep": keep}, of_five(rows, labels))
        for keep in ("best", "average")
    )
    assert (
        best.final.kept == average.final.kept == Kept("trained", "absent", None, None)
    )
    assert average.round0.closed_form.details["floor"] > 0
    assert average.round0.closed_form.probabilities.floor > 0
    assert average.final.probabilities.floor == 0
    x = torch.tensor(rows, dtype=torch.float32)
    same = [r.model(x).softmax(dim=1).detach() for r in (best, average)]
    assert torch.allclose(same[0], same[1], atol=1e-5)


def test_an_mlp_beside_a_one_shot_head_does_not_diverge():
    """At this rate it would, if its gradients had no limit."""
    high, data = {"train.optimizer.lr": 5.0}, of_five(*curved_classes())
    results = run({**HELD_OUT, **high}, data)
    assert results.final.kept.head == "average"
    assert results.final.avg > results.round0.closed_form.avg + 0.1
    with pytest.raises(GGEURError, match="training diverged"):
        run({**HELD_OUT, **high, "grad.grad_clip": 0.0}, data)


def test_clients_that_are_not_prepared_are_not_asked_about_a_mean():
    """Unseen clients do not know the one-shot head."""
    unseen = {"federate.unseen_clients_rate": 0.2, "federate.total_round_num": 2}
    results = run({**HELD_OUT, **unseen}, of_five(*curved_classes()))
    assert results.calibrated.details["rows"] == 240


def test_rows_held_out_prefer_the_one_shot_head_where_it_is_the_best_one():
    """Classes are normal with one covariance, so nothing beats lda."""
    draw = np.random.default_rng(0).normal
    labels = np.repeat(np.arange(20), 90)
    rows = draw(size=(20, 30))[labels] + 2.5 * draw(size=(1800, 30))
    data = of_five(rows, labels)
    results = run(HELD_OUT, data)
    assert results.final.kept == Kept("closed_form", "log_loss", None, None)
    assert "smallest log-loss on rows that training did not" in results_table(results)
    assert results.calibrated.details["share"] == 1
    assert results.final.avg == results.round0.closed_form.avg
    assert results.final.calibrated_by == "leave_one_out"
    np.testing.assert_allclose(
        results.predict_proba(rows),
        run({"ggeur.closed_form": "auto"}, data).predict_proba(rows),
        atol=1e-6,
    )


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["best", "average"])
def test_where_labels_and_domains_are_confounded_training_has_the_last_word(
    keep, config
):
    """As lds divides the digits; training then starts where plain training does, and
    draws around clients' rows."""
    results = run(config(*KINDS["auto"], *START, "ggeur.keep", keep, *FEW))
    assert results.round0.geometry_bytes_down > 0
    details = results.round0.closed_form.details
    assert (results.final.kept.by, results.final.head) == ("confounded", "trained")
    assert details["start"] == {"closed_form": "none"}
    assert details["confounded_share"] > 0.5
    assert details["note"] in results.notes
    plain = run(config("ggeur.space", "raw"))
    same = run(config(*KINDS["lda"], *BEST, "ggeur.space", "raw"))
    assert same.final.kept.by == "confounded"
    assert [r.accuracy for r in same.rounds] == [r.accuracy for r in plain.rounds]


def test_where_domains_have_no_classes_in_common_a_linear_head_starts_at_random():
    """The one-shot head could tell domains in place of classes. 20 classes are in one
    domain each; nobody sent the last one, so the trained head is kept alone."""
    draw = np.random.default_rng(0)
    labels = np.r_[np.arange(1200) % 20, np.full(8, 20)]
    domain = np.r_[labels[:1200] % 4, np.arange(8) % 4]
    rows = 3 * draw.normal(size=(21, 161))[labels]
    rows += 20 * draw.normal(size=(4, 161))[domain] + draw.normal(size=rows.shape)
    test = np.arange(len(labels)) % 6 == 5
    data = FederatedData.from_arrays(rows, labels, domain, domain, test=test)
    results = run(HELD_OUT, data)
    assert results.final.kept == Kept("trained", "confounded", None, None)
    assert results.round0.closed_form.details["start"] == {"closed_form": "none"}
    best = run({**HELD_OUT, "ggeur.keep": "best"}, data)
    assert [r.accuracy for r in results.rounds] == [r.accuracy for r in best.rounds]


# Runs whose clients make one-shot heads of their own, and keep them.


OWN = ["ggeur.closed_form", "lda", "ggeur.personal.head", "means"]
OWN += ["ggeur.privacy.min_samples", 1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "standardize"), [("lda", True), ("auto", False)])
def test_what_is_scored_is_what_predicts(config, kind, standardize):
    own = [*OWN, "ggeur.closed_form", kind, "ggeur.lda.standardize", standardize]
    going, results = finished(config(*own))
    found = results.round0.personal
    for client in going.data.clients:
        test = client.test
        found_classes = results.predict(test.features, clients=client.number)
        right = found_classes == test.labels.numpy()
        assert right.mean() == pytest.approx(found.accuracy[client.domain], abs=1e-12)
    plain = run(config(*own, "ggeur.personal.head", "none"))
    features = going.data.clients[0].test.features
    np.testing.assert_array_equal(
        results.predict_proba(features), plain.predict_proba(features)
    )
    assert plain.round0.personal is None
    assert results.final.accuracy == plain.final.accuracy


def test_the_folder_has_a_head_for_each_client(config, tmp_path):
    going, results = finished(config(*OWN))
    history = going.history
    assert history.own_models().tensors.keys() == {1, 2, 3}
    assert results.round0.personal.bytes_up > 0
    write_run(tmp_path, results, history.head_bytes(), history.own_bytes())
    left = LeftModels(tmp_path)
    features = going.data.clients[1].test.features
    models = left.on(features.shape[1])
    numbers = left.numbers(2, len(features))
    mine = Model.probabilities(models.logits(features, numbers)).numpy()
    np.testing.assert_array_equal(mine, results.predict_proba(features, clients=2))
    assert left.numbers(None, 3).tolist() == [0, 0, 0]


def test_own_heads_beside_a_mixture_start_from_lda_and_the_run_says_so(config):
    by_domain = ["data.splitter", "domain", "data.splitter_args", []]
    rows = [*DIGITS, "data.splits", [0.7, 0.0, 0.3], "federate.client_num", 4]
    results = run(config(*OWN, "ggeur.closed_form", "auto", *rows, *by_domain))
    details = results.closed_form.details
    assert details["closed_form"] == "mixture"
    assert details["note"].startswith("clients' own heads start from lda")
    assert results.round0.personal is not None
    lda = run(config(*OWN))
    assert "note" not in lda.closed_form.details


def test_nothing_is_made_beside_a_trained_head(config, caplog):
    trained = ["ggeur.init", "closed_form", "federate.total_round_num", 1]
    results = run(config(*OWN, *trained))
    assert results.round0.personal is None
    assert "no client has its own head" in caplog.text


# Runs whose heads have a temperature: chosen by rows left out, or by validation rows.
#
# What a client tells for it is said by tests/federation/exchanges/closed_form/
# test_leave_one_out.py and evaluation/test_evaluation_scores.py.


ALL = ["ggeur.privacy.min_samples", 1]
SIX = ["federate.client_num", 6]
LDA_OF_ALL = ["ggeur.closed_form", "lda", *ALL]
NONE = ["ggeur.temperature", "none"]
#: Rows of which heads are not always right.
DIGITS = ["data.type", "digits_quickstart@ggeur", "data.splits", [0.3, 0.0, 0.7]]
# More than 150 of the 324 rows are for validation.
VALIDATION = [
    "data.splitter", "domain",
    "data.splitter_args", [],
    "data.splits", [0.3, 0.55, 0.15],
    *ALL,
    "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss",
    "early_stop.patience", 0,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lda", "ridge", "mixture"])
def test_the_log_loss_of_left_out_rows_falls_and_no_class_changes(config, kind):
    settings = ["ggeur.closed_form", kind, *ALL, *IID, *DIGITS]
    with_it = run(config(*settings, "ggeur.confidences", True))
    without = run(config(*settings, *NONE))
    details = with_it.closed_form.details
    assert details["left_out_loss"] <= details["left_out_loss_before"]
    assert with_it.final.accuracy == without.final.accuracy
    assert with_it.final.calibrated_by == "leave_one_out"
    assert without.final.calibrated_by is None
    before = with_it.final.probabilities.before
    assert before.ece == pytest.approx(without.final.probabilities.after.ece, abs=1e-3)
    after = with_it.final.probabilities.after
    assert after.log_loss <= before.log_loss
    assert kind != "ridge" or after.log_loss < before.log_loss / 2
    assert "calibrated by rows left out" in results_table(with_it)
    assert "not calibrated" in results_table(without)
    bins = details["confidence_bins"]
    assert len(bins) == 65
    assert sum(bins) == details["temperature_rows"]
    assert "confidence_bins" not in without.closed_form.details


def test_training_starts_from_the_divided_head(config):
    settings = [*LDA_OF_ALL, *START, *IID, *DIGITS, "ggeur.lda.shrinkage", 0.3]
    settings += ["ggeur.steps", [], "ggeur.space", "raw"]
    heads, t = [], 1.0
    for more in ([], NONE):
        going = Run(config(*settings, *more))
        next(records := going.engine.run())
        heads.append(going.engine.server.params)
        t = t if more else going.history.round0.closed_form.details["temperature"]
        list(records)
        kept = going.history.results().final.calibrated_by
        assert kept == (None if more else "start")
    assert t != 1
    torch.testing.assert_close(t * heads[0], heads[1], rtol=1e-5, atol=1e-5)


def mean_loss(model, rows, temperature):
    logits = model(rows.features).double().detach()
    return float(F.cross_entropy(logits / temperature, rows.labels))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["federate.make_global_eval", True],
        ["ggeur.space", "standard"],
        ["ggeur.mlp_hidden_dim", 8],
    ],
    ids=str,
)
def test_it_is_the_best_on_the_validation_rows_and_changes_no_class(config, more):
    going, results = finished(config(*VALIDATION, *more))
    without = run(config(*VALIDATION, *more, *NONE))
    found = results.temperature_scaling
    rows = [held.val for held in going.data.clients]
    assert found.rows == sum(map(len, rows)) >= LEAST_VALIDATION

    def on_validation(temperature):
        each = [len(r) * mean_loss(without.model, r, temperature) for r in rows]
        return sum(each) / found.rows

    assert on_validation(1.0) == pytest.approx(found.loss_before, abs=0.01)
    best = on_validation(found.temperature)
    assert best <= on_validation(1.0)
    assert best <= min(map(on_validation, temperatures(16.0))) + 0.01
    points = torch.cat([r.features for r in rows])
    torch.testing.assert_close(
        results.model(points) * found.temperature, without.model(points),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip
    assert results.final.accuracy == without.final.accuracy
    assert [r.loss for r in results.rounds] == [r.loss for r in without.rounds]
    assert results.final.calibrated_by == "validation"
    after, before = found.probabilities.after, found.probabilities.before
    assert results.final.probabilities == found.probabilities
    assert before == pytest.approx(without.final.probabilities.after, abs=1e-3)
    assert after != before
    assert "calibrated by validation rows" in results_table(results)


@pytest.mark.parametrize(
    "more",
    [
        ["data.splits", [0.4, 0.4, 0.2]],
        ["eval.split", ["test"]],
        ["ggeur.base_method", "local"],
        ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20],
        NONE,
    ],
    ids=str,
)
def test_else_nothing_is_asked(config, more):
    going, asked = Run(config(*VALIDATION, *more)), set()
    going.engine.listen = lambda request, replies: asked.add(request.kind.name)
    results = going.follow(lambda record: None)
    assert "validation_losses" not in asked
    assert results.temperature_scaling is None
    assert results.final.calibrated_by is None


@pytest.mark.parametrize(
    ("more", "head", "by"),
    [
        ([*LDA_OF_ALL, *START], "trained", "validation"),
        (
            [*LDA_OF_ALL, *START, "ggeur.keep", "best", "train.optimizer.lr", 1e-9],
            "closed_form",
            "leave_one_out",
        ),
        (["early_stop.patience", 1, "early_stop.delta", 1e6], "trained", "validation"),
    ],
    ids=["a start", "a head that is kept", "an early stop"],
)
def test_the_head_that_is_left_has_its_own(config, more, head, by):
    results = run(config(*VALIDATION, *more))
    assert (results.final.head, results.final.calibrated_by) == (head, by)
    assert (results.temperature_scaling is None) == (by == "leave_one_out")


@pytest.mark.parametrize("settings", [[], LDA_OF_ALL], ids=str)
def test_every_client_with_test_rows_has_an_accuracy(config, settings):
    final = run(config(*SIX, *settings)).final
    each = final.client_accuracy
    assert sorted(map(int, each)) == [1, 2, 3, 4, 5, 6]
    worst = final.worst_client
    assert min(each.values()) == each[str(worst.client)] == worst.accuracy
    assert sum(each.values()) / 6 == pytest.approx(worst.mean)
