"""Runs in a space are raw runs on transformed embeddings, whatever is trained how.

That is the oracle: rows are transformed beforehand, by the space of all clients' rows,
and trained on as raw ones. What a run in the space leaves, the model on raw embeddings,
must give the same logits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from every_method import ADDED, OTHERS, words

from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationExchange,
)
from federatedscope_ggeur.geometry import ClassStatistics, SpaceSettings, Totals
from federatedscope_ggeur.models import CLOSED_FORMS, fold, to_vector
from federatedscope_ggeur.reporting import numbers

pytestmark = pytest.mark.slow

STANDARD, WHITENED = "standard", "whitened"
MLP = ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2]
CCVR = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 30]
#: Every row may be told of; the rate of the example does something in three rounds.
ALL_ROWS = ["ggeur.privacy.min_samples", 1, "train.optimizer.lr", 0.05]
#: FedMix refuses what would leave single rows beside its means.
GGEUR, PLAIN = ["ggeur.steps", [1, 2]], ["ggeur.steps", []]


@pytest.fixture
def config(config):
    return lambda *settings: config(*ALL_ROWS, *settings)


def space_of(kind, parts):
    """The space of the train rows of all `parts`."""
    rows = torch.cat([part.train.features for part in parts])
    labels = torch.cat([part.train.labels for part in parts])
    statistics = ClassStatistics.from_embeddings(rows, labels, int(labels.max()) + 1)
    return SpaceSettings(kind).make(Totals.of_rows(rows), statistics)


def changed(data, change, splits=("train", "val", "test")):
    """`data` with the features of some of its splits changed."""

    def part(rows):
        return replace(rows, features=change(rows.features))

    clients = tuple(
        replace(held, **{split: part(getattr(held, split)) for split in splits})
        for held in data.clients
    )
    pooled = data.pooled and {
        split: {name: part(rows) for name, rows in domains.items()}
        for split, domains in data.pooled.items()
    }
    return replace(data, clients=clients, pooled=pooled)


def assert_same_run(config, kind, settings):
    """The run in the space is the raw run on transformed embeddings."""
    data = load_federated_data(config(*settings))
    inside = Run(config(*settings, "ggeur.space", kind))
    # Clients that are scored alone tell nothing.
    trained = inside.engine.server.participants
    space = space_of(kind, [h for h in data.clients if h.number in trained])
    outside = Run(
        config(*settings, "ggeur.space", "raw"), changed(data, space.features)
    )
    here, there = (going.follow(lambda record: None) for going in (inside, outside))
    rows = torch.cat([rows.features for rows in data.test_sets().values()])
    found, wanted = here.model(rows), there.model(space.features(rows))
    # Rounds of training make more of what float32 rounds.
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
    # ... and it matters which of the two are transformed.
    assert (found - here.model(space.features(rows))).abs().max() > 0.05
    for one, two in zip(here.rounds, there.rounds):
        assert one.loss == pytest.approx(two.loss, rel=1e-3)
        assert one.unseen_clients == two.unseen_clients


@pytest.mark.parametrize("kind", [STANDARD, WHITENED])
@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        [*PLAIN, *MLP],
        *([*PLAIN, *words(name)] for name in OTHERS),
        *([*PLAIN, *MLP, *words(name)] for name in ("fedproto", "moon")),
        *(["ggeur.augmentation", name] for name in ADDED),
        ["ggeur.augmentation", "fedgen", *MLP],
        [*PLAIN, *CCVR],
        [*PLAIN, *CCVR, *MLP],
        [*PLAIN, "federate.make_global_eval", True],
        [*PLAIN, "federate.client_num", 8, "federate.unseen_clients_rate", 0.25],
    ],
    ids=str,
)
def test_a_run_in_a_space_is_a_raw_run_on_transformed_rows(config, kind, settings):
    assert_same_run(config, kind, settings)


@pytest.mark.parametrize(
    "settings",
    [
        GGEUR,
        [*GGEUR, *MLP, "ggeur.prototypes", "client", "federate.client_num", 6],
        ["ggeur.steps", [1]],
        [*GGEUR, "ggeur.scale", "eigenvalue"],
        [*GGEUR, *CCVR],
        [*GGEUR, "ggeur.base_method", "centralised"],
    ],
    ids=str,
)
def test_so_is_one_with_geometry_and_prototypes(config, settings):
    assert_same_run(config, STANDARD, settings)


@pytest.mark.usefixtures("in_units")
@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        GGEUR,
        [*PLAIN, *CCVR],
        [*GGEUR, "ggeur.statistics", "summed", "ggeur.geometry", "pooled"],
    ],
    ids=str,
)
def test_so_is_one_on_dimensions_in_other_units(config, settings):
    results = run(config(*settings, "ggeur.space", STANDARD))
    assert results.round0.space["scales"] == "each"
    assert_same_run(config, STANDARD, settings)
    raw = run(config(*settings, "ggeur.space", "raw"))
    assert results.final.avg > raw.final.avg


@pytest.mark.parametrize(
    ("kind", "statistics", "tolerance"),
    [
        (STANDARD, "class", 1e-9),
        (STANDARD, "summed", 1e-9),
        (STANDARD, "means", 1e-9),
        (STANDARD, "compressed", 0.02),
        (WHITENED, "class", 1e-5),
        (WHITENED, "summed", 1e-5),
    ],
)
def test_the_space_is_of_all_rows_whatever_is_sent_of_them(
    config, kind, statistics, tolerance
):
    assert_space_of_all_rows(config, kind, statistics, tolerance)


def assert_space_of_all_rows(config, kind, statistics, tolerance):
    form = "ncm" if statistics == "means" else "ridge"
    settings = ["ggeur.closed_form", form, "ggeur.init", "closed_form", *PLAIN]
    settings += ["ggeur.space", kind, "ggeur.statistics", statistics]
    data = load_federated_data(config())
    going = Run(config(*settings), data)
    next(going.engine.run())
    found, wanted = going.engine.server.space, space_of(kind, data.clients)
    assert found.report().get("scales") == wanted.report().get("scales")
    rows = data.clients[0].train.features
    there, here = wanted.features(rows), found.features(rows)
    assert (there - here).norm() <= tolerance * there.norm() + 1e-6


@pytest.mark.usefixtures("in_units")
@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize("statistics", ["class", "summed", "means"])
def test_so_is_the_scale_of_each_dimension(config, statistics, least):
    """With rows of withheld classes in totals of their own, too."""
    config = partial(config, "ggeur.privacy.min_samples", least)
    assert_space_of_all_rows(config, STANDARD, statistics, 1e-6)


def test_a_pooled_shape_is_in_the_space_too(config):
    assert_same_run(config, STANDARD, [*GGEUR, "ggeur.geometry", "pooled"])


def test_white_shapes_are_those_of_white_rows(config):
    """Directions of all but equal width may be turned: what they span is compared."""
    settings = [*GGEUR, "data.splitter", "iid", "data.splitter_args", "[]"]
    data = load_federated_data(config(*settings))
    space = space_of(WHITENED, data.clients)
    shapes = []
    for kind, given in ((WHITENED, data), ("raw", changed(data, space.features))):
        going = Run(config(*settings, "ggeur.space", kind), given)
        next(going.engine.run())
        shapes.append(
            going.engine.coordinator.find(AugmentationExchange).make_geometry().shapes
        )
    for c, shape in shapes[0].items():
        here, there = shape.basis(), shapes[1][c].basis()
        torch.testing.assert_close(here.T @ here, there.T @ there, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [STANDARD, WHITENED])
@pytest.mark.parametrize("settings", [PLAIN, [*PLAIN, *MLP]], ids=str)
def test_a_client_by_itself_has_a_space_of_its_own_rows(config, kind, settings):
    settings = [*settings, "ggeur.base_method", "local"]
    data = load_federated_data(config(*settings))
    apart = []
    for held in data.clients:
        alone = replace(data, clients=(held,))
        own = space_of(kind, [held])
        apart += changed(alone, own.features).clients
    before = replace(data, clients=tuple(apart))
    inside = run(config(*settings, "ggeur.space", kind))
    assert inside.round0.totals_bytes_up == 0
    outside = run(config(*settings, "ggeur.space", "raw"), before)
    for here, there in zip(inside.rounds, outside.rounds):
        assert here.loss == pytest.approx(there.loss, rel=1e-3)
        assert here.accuracy == pytest.approx(there.accuracy)


def test_with_statistics_it_has_that_of_all(config):
    settings = [*GGEUR, "ggeur.base_method", "local"]
    data = load_federated_data(config(*settings))
    before = changed(data, space_of(STANDARD, data.clients).features)
    inside = run(config(*settings, "ggeur.space", STANDARD))
    outside = run(config(*settings, "ggeur.space", "raw"), before)
    for here, there in zip(inside.rounds, outside.rounds):
        assert here.loss == pytest.approx(there.loss, rel=1e-3)


@pytest.mark.parametrize("kind", [STANDARD, WHITENED])
@pytest.mark.parametrize(
    "form", [name for name, form in CLOSED_FORMS.items() if form.trainable]
)
def test_training_starts_at_the_closed_form_of_raw_embeddings(config, kind, form):
    settings = ["ggeur.closed_form", form, "ggeur.space", kind, *PLAIN]
    alone = run(config(*settings))
    going = Run(config(*settings, "ggeur.init", "closed_form"))
    results = going.follow(lambda record: None)
    first = results.round0.closed_form
    assert first.accuracy == alone.closed_form.accuracy
    assert first.loss == pytest.approx(alone.closed_form.loss, rel=1e-4)
    assert len(results.rounds) == 3
    assert alone.round0.space is None  # nothing is trained
    server = going.engine.server
    folded = fold(server.model, server.params, server.space)
    assert torch.equal(to_vector(results.model), folded)


@pytest.mark.parametrize("kind", [STANDARD, WHITENED])
def test_scores_are_of_the_model_on_raw_embeddings(config, kind):
    results = run(config("ggeur.space", kind))
    data = load_federated_data(config())
    for name, test in data.test_sets().items():
        right = (results.predict(test.features) == test.labels.numpy()).mean()
        assert results.rounds[-1].accuracy[name] == right


def test_clients_and_server_score_the_same_model(config):
    by_server = run(config("ggeur.space", STANDARD, "federate.make_global_eval", True))
    by_clients = run(config("ggeur.space", STANDARD))
    assert by_server.rounds[-1].accuracy == by_clients.rounds[-1].accuracy


def test_it_is_the_default_and_papers_configs_are_raw(quickstart):
    assert default_config().ggeur.space == STANDARD
    first = {
        quickstart.name,
        "ggeur_own_embeddings.yaml",
        "ggeur_own_embeddings_private.yaml",
        "ggeur_own_embeddings_dp.yaml",
        "network_then_ggeur.yaml",
    }
    for path in quickstart.parent.glob("*.yaml"):
        ggeur = load_config(path).ggeur
        # A network normalises pixels itself, a text model takes rows as they are.
        at_default = path.name in first or ggeur.network.name or ggeur.text.model
        assert ggeur.space == (STANDARD if at_default else "raw")


@pytest.mark.parametrize("kind", [STANDARD, WHITENED])
@pytest.mark.parametrize("unit", [1e-2, 1e3])
def test_neither_unit_nor_origin_of_the_embeddings_matters(config, kind, unit):
    data = load_federated_data(config())
    other = changed(data, lambda rows: unit * (rows + 0.5))
    here = run(config("ggeur.space", kind, *PLAIN))
    there = run(config("ggeur.space", kind, *PLAIN), other)
    for one, two in zip(here.rounds, there.rounds):
        assert one.loss == pytest.approx(two.loss, rel=1e-3)


def test_rows_of_validation_and_test_do_not_enter_the_space(config):
    config = partial(config, "data.splits", "[0.6, 0.2, 0.2]")
    data = load_federated_data(config())
    assert len(data.clients[0].val)
    other = changed(data, lambda rows: rows + 100, ("val", "test"))
    settings = ["ggeur.space", STANDARD]
    here, there = (Run(config(*settings), d) for d in (data, other))
    for going in (here, there):
        going.follow(lambda record: None)
    assert torch.equal(here.engine.server.params, there.engine.server.params)


def test_the_run_says_its_space_and_counts_its_bytes(config):
    results = run(config("ggeur.space", STANDARD, *PLAIN))
    rows = torch.cat(
        [h.train.features for h in load_federated_data(config()).clients]
    ).double()
    distance = float((rows - rows.mean(dim=0)).square().sum(dim=1).mean().sqrt())
    assert results.round0.space["kind"] == STANDARD
    assert results.round0.space["distance"] == pytest.approx(distance)
    assert results.round0.space["scales"] == "one"
    # A mean, a count and variances a client; a centre and a scale to each.
    assert 0 < results.round0.totals_bytes_up < 3 * (2 * 8 * 16 + 400)
    assert 0 < results.round0.space_bytes_down < 3 * (8 * 16 + 400)
    raw = run(config("ggeur.space", "raw", *PLAIN)).round0
    assert (raw.totals_bytes_up, raw.space_bytes_down, raw.space) == (0, 0, None)


@pytest.mark.usefixtures("in_units")
def test_a_restored_run_keeps_the_scale_of_each_dimension(config, tmp_path):
    settings = ["ggeur.space", STANDARD, *GGEUR]
    path = tmp_path / "point"
    run(config(*settings, "federate.total_round_num", 1, "federate.save_to", path))
    restored = run(config(*settings, "federate.restore_from", path))
    whole = run(config(*settings))
    assert restored.round0.space == whole.round0.space
    assert whole.round0.space["scales"] == "each"
    assert torch.equal(to_vector(restored.model), to_vector(whole.model))


@pytest.mark.parametrize(
    "settings", [[], ["ggeur.base_method", "local"], WHITENED], ids=str
)
def test_a_restored_run_ends_with_the_same_bits(config, tmp_path, settings):
    settings = ["ggeur.space", settings] if settings == WHITENED else settings
    settings = ["ggeur.space", STANDARD, *settings]
    path = tmp_path / "point"
    stopped = Run(config(*settings, "federate.save_to", path))
    for record in stopped.engine.run():
        if getattr(record, "round", 0) == 2:
            break
    restored = Run(config(*settings, "federate.restore_from", path))
    results = restored.follow(lambda record: None)
    whole = Run(config(*settings))
    wanted = whole.follow(lambda record: None)
    assert numbers(results)["rounds"] == numbers(wanted)["rounds"]
    assert results.round0.space == wanted.round0.space
    assert torch.equal(restored.engine.server.params, whole.engine.server.params)


def test_a_checkpoint_shows_others_the_model_on_raw_embeddings(config, tmp_path):
    from safetensors.torch import load_file

    path = tmp_path / "point"
    results = run(config("ggeur.space", STANDARD, "federate.save_to", path))
    assert torch.equal(load_file(path)["params"], to_vector(results.model))


def test_weights_of_federatedscope_are_entered_into_the_space(config, tmp_path):
    """They are of a model on raw embeddings, as all that leaves a run is."""
    first = run(config("ggeur.space", "raw"))
    path = tmp_path / "fs.pt"
    torch.save({"cur_round": 3, "model": first.model.state_dict()}, path)
    settings = ["ggeur.space", STANDARD, "federate.restore_from", path]
    going = Run(config(*settings))
    next(going.engine.run())
    found = going.engine.server.raw_params
    torch.testing.assert_close(found, to_vector(first.model), rtol=1e-5, atol=1e-5)


def test_a_run_says_at_its_start_what_it_trains_in(config):
    assert (
        "space of training: whitened" in Run(config("ggeur.space", WHITENED)).describe()
    )
    alone = ["ggeur.closed_form", "lda", "ggeur.space", WHITENED]
    assert not any("space" in line for line in Run(config(*alone)).describe())
