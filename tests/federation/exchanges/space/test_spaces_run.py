"""Runs in a space are raw runs on transformed embeddings, whatever is trained how.

That is the oracle: rows are transformed beforehand, by the space of all clients' rows,
and trained on as raw ones. What a run in the space leaves, the model on raw embeddings,
must give the same logits.
"""

import logging
from dataclasses import replace

import pytest
import torch
from by_bytes import CLASSES, DIM, make_rows
from changed_rows import changed
from every_method import words
from safetensors.torch import load_file

from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.federation.exchanges.space import (
    SpaceBroadcast,
    SpaceMaker,
    TotalsUpload,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import Space, Totals
from federatedscope_ggeur.models import CLOSED_FORMS, fold, to_vector

STANDARD = "standard"
MLP = ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2]
CCVR = ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 30]
#: Every row may be told of; the rate of the example does something in three rounds.
ALL_ROWS = ["ggeur.privacy.min_samples", 1, "train.optimizer.lr", 0.05]
#: FedMix refuses what would leave single rows beside its means.
GGEUR, PLAIN = ["ggeur.steps", [1, 2]], ["ggeur.steps", []]
POOLED = [*GGEUR, "ggeur.geometry", "pooled"]
LOCAL = ["ggeur.base_method", "local"]


@pytest.fixture
def config(config):
    return lambda *settings: config(*ALL_ROWS, *settings)


def space_of(parts):
    """The standard space of the train rows of all `parts`."""
    rows = torch.cat([part.train.features for part in parts])
    return Space.standard(Totals.of_rows(rows))


def within(space):
    """What makes of rows those in the space."""
    return lambda rows: replace(rows, features=space.features(rows.features))


def assert_same_run(config, settings):
    """The run in the space is the raw run on transformed embeddings."""
    data = load_federated_data(config(*settings))
    inside = Run(config(*settings, "ggeur.space", STANDARD))
    # Clients that are scored alone tell nothing.
    trained = inside.engine.server.participants
    space = space_of([h for h in data.clients if h.number in trained])
    outside = Run(config(*settings, "ggeur.space", "raw"), changed(data, within(space)))
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


SLOW_RUNS = [
    [*PLAIN, *MLP, *words("moon")],
    [*PLAIN, *words("scaffold")],
    [*PLAIN, *MLP, *CCVR],
    ["ggeur.augmentation", "fedmix"],
    ["ggeur.augmentation", "fedgen", *MLP],
    [*GGEUR, *MLP, "ggeur.prototypes", "client", "federate.client_num", 6],
    [*GGEUR, *CCVR],
    [*GGEUR, "ggeur.base_method", "centralised"],
]


@pytest.mark.parametrize(
    "settings",
    [
        [*PLAIN, *CCVR],
        [*PLAIN, *words("fedproto")],
        [*PLAIN, "federate.make_global_eval", True],
        [*PLAIN, "federate.client_num", 8, "federate.unseen_clients_rate", 0.25],
        [*GGEUR, "ggeur.scale", "eigenvalue"],
        POOLED,
        *(pytest.param(settings, marks=pytest.mark.slow) for settings in SLOW_RUNS),
    ],
    ids=str,
)
def test_a_run_in_a_space_is_a_raw_run_on_transformed_rows(config, settings):
    assert_same_run(config, settings)


@pytest.mark.slow
@pytest.mark.usefixtures("in_units")
@pytest.mark.parametrize(
    "settings", [[*PLAIN, *CCVR], [*POOLED, "ggeur.statistics", "summed"]], ids=str
)
def test_so_is_one_on_dimensions_in_other_units(config, settings):
    results = run(config(*settings, "ggeur.space", STANDARD))
    assert results.round0.space["scales"] == "each"
    assert_same_run(config, settings)
    raw = run(config(*settings, "ggeur.space", "raw"))
    assert results.final.avg > raw.final.avg


def assert_space_of_all_rows(config, statistics, tolerance, least=1):
    form = "ncm" if statistics == "means" else "ridge"
    settings = ["ggeur.closed_form", form, "ggeur.init", "closed_form", *PLAIN]
    settings += ["ggeur.space", STANDARD, "ggeur.statistics", statistics]
    data = load_federated_data(config())
    going = Run(config(*settings, "ggeur.privacy.min_samples", least), data)
    next(going.engine.run())
    found, wanted = going.engine.server.space, space_of(data.clients)
    assert found.report().get("scales") == wanted.report().get("scales")
    rows = data.clients[0].train.features
    there, here = wanted.features(rows), found.features(rows)
    assert (there - here).norm() <= tolerance * there.norm() + 1e-6


@pytest.mark.parametrize(
    ("statistics", "tolerance"),
    [("compressed", 0.02), ("class", 1e-5), ("summed", 1e-5)],
)
def test_the_space_is_of_all_rows_whatever_is_sent_of_them(
    config, statistics, tolerance
):
    assert_space_of_all_rows(config, statistics, tolerance)


@pytest.mark.usefixtures("in_units")
@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize("statistics", ["class", "summed", "means"])
def test_so_is_the_scale_of_each_dimension(config, statistics, least):
    """With rows of withheld classes in totals of their own, too."""
    assert_space_of_all_rows(config, statistics, 1e-6, least)


@pytest.mark.parametrize("settings", [[*PLAIN, *MLP], GGEUR], ids=str)
def test_a_client_by_itself_has_a_space_of_its_own_unless_statistics_travel(
    config, settings
):
    settings = [*settings, *LOCAL]
    data = load_federated_data(config(*settings))
    apart = []
    for held in data.clients:
        alone = replace(data, clients=(held,))
        own = space_of(data.clients if settings[:2] == GGEUR else [held])
        apart += changed(alone, within(own)).clients
    before = replace(data, clients=tuple(apart))
    inside = run(config(*settings, "ggeur.space", STANDARD))
    outside = run(config(*settings, "ggeur.space", "raw"), before)
    for here, there in zip(inside.rounds, outside.rounds):
        assert here.loss == pytest.approx(there.loss, rel=1e-3)
        assert here.accuracy == pytest.approx(there.accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["raw", STANDARD])
@pytest.mark.parametrize(
    "form", [name for name, form in CLOSED_FORMS.items() if form.trainable]
)
def test_training_starts_at_the_closed_form_of_raw_embeddings(config, kind, form):
    settings = ["ggeur.closed_form", form, "ggeur.space", kind, *PLAIN]
    alone = run(config(*settings))
    going = Run(config(*settings, "ggeur.init", "closed_form"))
    heads = []
    results = going.follow(lambda record: heads.append(going.engine.server.raw_params))
    first = results.round0.closed_form
    assert first.accuracy == alone.closed_form.accuracy
    assert first.loss == pytest.approx(alone.closed_form.loss, rel=1e-4)
    if form != "auto":  # alone, it may take a mixture
        start = to_vector(alone.model)
        torch.testing.assert_close(heads[0], start, rtol=1e-3, atol=1e-3)
    assert len(results.rounds) == 3
    assert alone.round0.space is None  # nothing is trained
    server = going.engine.server
    folded = fold(server.model, server.params, server.space)
    assert torch.equal(to_vector(results.model), folded)
    assert not torch.equal(folded, heads[0])


def test_it_is_the_default_and_papers_configs_are_raw(quickstart):
    assert default_config().ggeur.space == STANDARD
    first = {
        quickstart.name,
        "compare_own_embeddings.yaml",
        "ggeur_own_embeddings.yaml",
    }
    for path in quickstart.parent.glob("*.yaml"):
        ggeur = load_config(path).ggeur
        # Other models take rows as they are.
        others = (("network", "name"), ("text", "model"))
        is_other = any(ggeur.get(part, {}).get(name) for part, name in others)
        at_default = path.name in first or is_other
        assert ggeur.space == (STANDARD if at_default else "raw")


def test_rows_of_validation_and_test_do_not_enter_the_space(config):
    settings = ["data.splits", "[0.6, 0.2, 0.2]", "ggeur.space", STANDARD]
    data = load_federated_data(config(*settings))
    assert len(data.clients[0].val)

    def moved(rows):
        return replace(rows, features=rows.features + 100)

    other = changed(data, moved, ("val", "test"))
    here, there = (run(config(*settings), held) for held in (data, other))
    assert torch.equal(to_vector(here.model), to_vector(there.model))


def test_a_checkpoint_shows_others_the_model_on_raw_embeddings(config, tmp_path):
    path = tmp_path / "point"
    results = run(config("ggeur.space", STANDARD, "federate.save_to", path))
    assert torch.equal(load_file(path)["params"], to_vector(results.model))


# The space of a run: of all rows that clients tell of, once each, and as it travels.
#
# Tests of exchanges/space/messages.py, too.


def assert_same(space, other):
    assert space.kind == other.kind
    torch.testing.assert_close(space.centre, other.centre)
    rows = make_rows(9, 99)[0]
    torch.testing.assert_close(space.features(rows), other.features(rows))


def test_totals_alone_make_the_standard_space_of_all_rows():
    parts = [make_rows(n, seed=n)[0] for n in (3, 8, 5)]
    maker = SpaceMaker(DIM)
    uploads = [TotalsUpload(k, Totals.of_rows(part)) for k, part in enumerate(parts, 1)]
    maker.add(uploads[1:])
    maker.add(uploads[:1])
    assert maker.told == {1, 2, 3}
    made = maker.make()
    assert_same(made, Space.standard(Totals.of_rows(torch.cat(parts))))
    other = SpaceMaker(DIM)
    other.add(uploads[:0:-1])  # within a window the order changes no bit
    other.add(uploads[:1])
    assert torch.equal(other.make().centre, made.centre)


def test_where_nobody_tells_it_stays_raw_and_says_so(caplog):
    maker = SpaceMaker(DIM)
    maker.add([TotalsUpload(1, Totals.empty(DIM))])
    with caplog.at_level(logging.WARNING):
        assert maker.make().is_raw
    assert "raw embeddings" in caplog.text
    assert "lower" in caplog.text


def test_the_scatter_within_classes_goes_beside_means_alone():
    schema = MessageSchema(CLASSES, DIM, 1, StatisticsForm("means"))
    squares = torch.tensor([0.1, 0.2, 0, 0, 0, 0], dtype=torch.float64)
    upload = TotalsUpload(2, Totals.empty(DIM), 0.1 + 0.2, squares)
    received = TotalsUpload.from_bytes(upload.to_bytes(), schema, "client 2")
    assert received.within == upload.within
    assert torch.equal(received.within_squares, squares)


def spaces():
    rows = make_rows(40, 0)[0] + 3
    units = Totals.of_rows(rows * 10.0 ** torch.arange(DIM))
    return Space.standard(Totals.of_rows(rows)), Space.standard(units)


@pytest.mark.parametrize("space", spaces(), ids=lambda space: str(space.report()))
def test_both_sides_are_in_the_same_space_to_the_bit(space):
    data = SpaceBroadcast(space).to_bytes()
    received = SpaceBroadcast.from_bytes(data, MessageSchema(CLASSES, DIM, 1)).space
    assert received.kind == space.kind
    rows = make_rows(40, 0)[0]
    assert torch.equal(received.features(rows), space.features(rows))
    weights = rows.double()
    assert torch.equal(received.inverse_linear(weights), space.inverse_linear(weights))
