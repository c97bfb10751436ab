"""Whole runs in which statistics are secure sums, embedded."""

import numpy as np
import pytest
import torch
from outcomes import overheard
from private_words import OTHERS as GGEUR
from private_words import SHRUNK_LDA as LDA
from private_words import SUMS
from sklearn.datasets import load_digits, load_wine

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.extras.secure_sums.exchange import SumsClient
from federatedscope_ggeur.federation.exchanges import EXCHANGES, ORDER
from federatedscope_ggeur.federation.exchanges.augmentation.messages import Prototypes
from federatedscope_ggeur.federation.exchanges.base import answered_kinds
from federatedscope_ggeur.reporting import numbers

START = ["ggeur.init", "closed_form"]
LEAST = ["ggeur.privacy.min_samples", 1]  # nothing is kept back
STANDARD = ["ggeur.space", "standard"]


@pytest.mark.parametrize(
    "form", [["lda", "ggeur.lda.shrinkage", 0.3], ["ridge", "ggeur.ridge.strength", 1]]
)
def test_the_head_is_that_of_all_rows_and_nothing_of_one_client_goes_up(config, form):
    settings = ["ggeur.closed_form", *form, "ggeur.temperature", "none"]
    sums, found = overheard(Run(config(*settings, *SUMS)))
    plain = run(config(*settings, *LEAST))
    for one, other in zip(sums.model.parameters(), plain.model.parameters()):
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * size)
    assert sums.round0.sums.classes == list(range(12))
    assert sums.round0.sums.roster == [1, 2, 3]
    kinds = {"sum_keys", "sum_counts", "sum_means", "sum_pooled", "evaluate"}
    assert {kind for kind, *_ in found} == kinds
    assert "temperature is none" in sums.closed_form.details["not_calibrated"]


def private_run(data, more=()):
    """A run of the private configuration."""
    cfg = load_config("ggeur_own_embeddings_private.yaml", list(more))
    return Run(cfg, data).follow(lambda record: None)


@pytest.mark.parametrize(("size", "bits", "used"), [(1e-7, 60, 1), (1e-9, 40, 0)])
def test_a_tiny_column_does_not_rule_the_head(size, bits, used):
    """Where its scatter is rounding, the head does without it, and the run says so."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    x = rng.normal(size=(240, 6)) + 3 * np.eye(6)[y]
    clients, test = (np.arange(240) // 4) % 4, np.arange(240) % 3 == 0
    x[:, 0] *= size
    x = np.concatenate([x, np.full((240, 1), 5.5)], axis=1)  # which is no reason
    bits = ["ggeur.privacy.secure_sums_fraction_bits", str(bits)]
    with_it, without = (
        private_run(FederatedData.from_arrays(own, y, clients, test=test), bits)
        for own in (x, x[:, 1:])
    )
    if used:
        assert with_it.final.avg > without.final.avg
        assert "note" not in with_it.closed_form.details
    else:
        assert with_it.final.avg == without.final.avg
        assert not with_it.model.classifier.weight[:, 0].any()
        assert "hardly more than the rounding" in with_it.closed_form.details["note"]


def test_fewer_rows_than_columns_have_an_honest_head():
    """Sums are rounded, so that directions without rows have variance, too."""
    rng = np.random.default_rng(0)
    y = np.arange(430) % 2
    x = rng.normal(size=(430, 50)) + 0.5 * y[:, None]
    test, clients = np.arange(430) >= 30, np.arange(430) % 3
    data = FederatedData.from_arrays(x, y, clients, test=test)
    results = private_run(data)
    shrinkage = results.closed_form.details["shrinkage"]
    settings = {
        "ggeur.closed_form": "lda",
        "ggeur.lda.standardize": True,
        "ggeur.lda.shrinkage": shrinkage,
        "ggeur.privacy.min_samples": 1,
        "ggeur.temperature": "none",
    }
    assert shrinkage > 0.01
    assert results.final.avg == pytest.approx(run(settings, data).final.avg, abs=0.01)
    assert results.final.calibrated_by == "totals"
    assert results.final.probabilities.after.ece < 0.1


@pytest.mark.parametrize("form", ["lda", "ridge"])
def test_the_totals_give_the_head_a_temperature(form):
    x, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 6 > 0  # 300 rows to learn from
    data = FederatedData.from_arrays(x, y, np.arange(len(y)) % 4, test=test)
    settings = {"ggeur.closed_form": form, "ggeur.privacy.secure_sums": "statistics"}
    settings["ggeur.privacy.secure_sums_radius"] = 100
    found = run(settings, data)
    plain = run({**settings, "ggeur.temperature": "none"}, data)
    assert found.final.calibrated_by == "totals"
    assert found.final.avg == plain.final.avg
    value = found.closed_form.details["temperature"]
    for one, other in zip(found.model.parameters(), plain.model.parameters()):
        torch.testing.assert_close(one * value, other)
    ours, theirs = (r.final.probabilities.after for r in (found, plain))
    assert ours.log_loss < 0.9 * theirs.log_loss
    assert ours.ece < theirs.ece


def test_a_client_of_these_settings_answers_with_no_statistics_of_its_own(config):
    going = Run(config(*SUMS, *GGEUR))
    names = {kind.name for kind in answered_kinds(going.settings.demands)}
    others = {"statistics", "totals", "hit_counts", "log_losses", "calibrate"}
    others |= {"validation_losses", "personal_losses", "personal_head", "confidences"}
    others |= {"sum_moments", "sum_spread"}
    assert not names & others
    own = [EXCHANGES[room] for room in (*ORDER, "secure_sums")]
    assert names | others == {kind.name for part in own for kind in part.KINDS}
    plain = answered_kinds(Run(config()).settings.demands)
    assert not any("sum" in kind.name for kind in plain)


@pytest.mark.usefixtures("in_units")
def test_rows_in_other_units_are_summed_in_two_limbs_and_may_be_standardized(config):
    radius = ["ggeur.privacy.secure_sums_radius", 1e5]
    bits = ["ggeur.privacy.secure_sums_fraction_bits", 40]
    wide = [*LDA, *SUMS, *radius, *bits, "ggeur.temperature", "none"]
    sums = run(config(*wide, "ggeur.lda.standardize", True))
    plain = ["ggeur.lda.standardize", True, *LEAST, "ggeur.temperature", "none"]
    plain = run(config(*LDA, *plain))
    for one, other in zip(sums.model.parameters(), plain.model.parameters()):
        assert ((one - other).abs() <= 1e-4 * other.abs().clamp(min=1e-3)).all()
    elements = 12 * 17 + 1 + 16 * 17 // 2  # of both stages
    assert min(sums.round0.statistics_bytes_up.values()) > 16 * elements
    told = run(config(*wide)).closed_form.details["note"]
    assert "or set ggeur.lda.standardize to True" in told


def test_the_private_config_takes_rows_in_any_units():
    """The same predictions, whatever the units: from 1e-3 to 1e5."""
    x, y = load_wine(return_X_y=True)
    x, test = (x - x.mean(axis=0)) / x.std(axis=0), np.arange(len(y)) % 3 == 0
    clients = np.arange(len(y)) % 4
    found = []
    for units in (np.ones(13), 10.0 ** np.linspace(-3, 5, 13)):
        data = FederatedData.from_arrays(x * units, y, clients, test=test)
        results = private_run(data)
        assert "note" not in results.closed_form.details
        rows = torch.tensor(x * units, dtype=torch.float32)
        found.append(results.model(rows).softmax(dim=1))
    torch.testing.assert_close(*found, rtol=0, atol=1e-3)
    assert (found[0].argmax(dim=1).numpy() == y)[test].mean() > 0.95


def test_training_goes_on_from_sums(config):
    results = run(config(*LDA, *START, *GGEUR, *SUMS, *LEAST, *STANDARD))
    assert len(results.rounds) == 3
    assert results.final.avg > 0.5
    assert results.round0.totals_bytes_up == 0


def rows_of(going):
    return torch.cat([c.train.features for c in going.data.clients]).double()


def test_the_space_is_that_of_all_rows(config):
    going = Run(config(*SUMS, *GGEUR, *LEAST, *STANDARD))
    results = going.follow(lambda record: None)
    assert results.round0.sums.kept_back == []
    rows, space = rows_of(going), going.engine.server.space
    centre = rows.mean(dim=0)
    # As exact as the rows, which are float32.
    torch.testing.assert_close(space.centre, centre, rtol=0, atol=1e-7)
    distance = float((rows - centre).square().sum(1).mean().sqrt())
    assert results.round0.space["distance"] == pytest.approx(distance, rel=1e-9)


@pytest.mark.usefixtures("in_units")
def test_sums_give_each_dimension_a_scale(config):
    wide = ["ggeur.privacy.secure_sums_radius", 16384]
    wide += ["ggeur.privacy.secure_sums_fraction_bits", 20]
    going = Run(config(*SUMS, *GGEUR, *LEAST, *STANDARD, *wide))
    results = going.follow(lambda record: None)
    assert results.round0.space["scales"] == "each"
    rows, found = rows_of(going), going.engine.server.space.scales
    expected = (40 / rows.shape[1]) ** 0.5 / rows.std(dim=0, unbiased=False)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_step_2_is_around_the_mean_of_all_others(config):
    going = Run(config(*SUMS, *GGEUR, *LEAST, "ggeur.space", "raw"))
    going.follow(lambda record: None)
    clients = {c.number: c.train for c in going.data.clients}
    for k, client in going.engine.clients.items():
        others = [c for j, c in clients.items() if j != k]
        x = torch.cat([c.features for c in others]).double()
        y = torch.cat([c.labels for c in others])
        for block in client.recipe.blocks:
            wanted = x[y == block.label].mean(dim=0)
            assert len(block.prototypes) == int((y == block.label).any())
            if len(block.prototypes):
                found = block.prototypes[0].double()
                torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_a_class_that_is_kept_back_goes_down_with_nobody(config):
    """Of most classes one client of nine has nearly all rows."""
    skewed = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]
    going = Run(config(*SUMS, *skewed, *GGEUR))
    results, found = overheard(going)
    kept = results.round0.sums.kept_back
    assert kept, "no class is kept back; take another alpha"
    counts = going.held.counts
    rest = counts.sum(axis=0) - counts
    near = ((rest > 0) & (rest < 5)).any(axis=0) & (counts.sum(axis=0) >= 5)
    assert kept == np.flatnonzero(near).tolist()
    for kind, _, parts, _ in found:
        if kind == "prepare":
            sent = Prototypes.from_bytes(parts[1], going.engine.server.schema)
            assert not set(sent.labels.tolist()) & set(kept)
    # LDA tells no class mean unless a shape is sent beside it.
    for settings, leaves_out in (
        (LDA, False),
        (["ggeur.closed_form", "ncm"], True),
        ([*LDA, *START, *GGEUR], True),
    ):
        head = run(config(*SUMS, *skewed, *settings))
        sums = head.round0.sums
        left_out = 12 - len(sums.classes) + leaves_out * len(sums.kept_back)
        assert head.closed_form.details["left_out"] == left_out


def test_where_one_client_owns_nearly_everything_nothing_goes_down(config):
    going = Run(config(*SUMS, *LDA))
    for number in (2, 3):
        # What the other two hold is little.
        client = going.engine.clients[number]
        participant = going.engine.side(number, SumsClient).participant
        few = client.features[:4], client.labels[:4]
        participant._rows = type(participant._rows)(*few, participant._rows.settings)
    with pytest.raises(GGEURError, match="owns all but a few of the rows"):
        going.follow(lambda record: None)


def test_withheld_rows_are_those_below_the_threshold_over_all_clients(config):
    going = Run(config(*SUMS, *LDA, "ggeur.privacy.min_samples", 6))
    results = going.follow(lambda record: None)
    totals = going.held.counts.sum(axis=0)
    assert results.round0.sums.withheld_rows == totals[totals < 6].sum()
    assert results.round0.sums.classes == np.flatnonzero(totals >= 6).tolist()
    assert results.round0.withheld_pairs is None
    more = Run(config(*SUMS, *LDA, "ggeur.privacy.min_samples", 7))
    assert any("rows over all clients" in note for note in more.notes)


def test_the_same_seed_gives_the_same_numbers_although_masks_are_fresh(
    config, tmp_path
):
    settings = [*SUMS, *GGEUR, "federate.save_to", tmp_path / "kept"]
    first, found = overheard(Run(config(*settings)))
    data = (tmp_path / "kept").read_bytes() + (tmp_path / "kept.round0").read_bytes()
    assert b"masked" not in data
    (tmp_path / "kept").unlink()
    second, again = overheard(Run(config(*settings)))
    assert numbers(first) == numbers(second)
    for (kind, _, _, one), (_, _, _, other) in zip(found, again):
        assert (one != other) == kind.startswith("sum_")


@pytest.mark.parametrize("standardize", [False, True])
def test_where_small_dimensions_are_rounding_nobody_is_told_to_standardize(standardize):
    rows = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
    rows[:, 0] *= 1e6
    data = FederatedData.from_arrays(rows, torch.arange(80) % 2, torch.arange(80) % 4)
    lda = {"ggeur.closed_form": "lda", "ggeur.lda.standardize": standardize}
    lda |= {"ggeur.privacy.secure_sums": "statistics", "data.transform": ["l2"]}
    notes = " ".join(run(lda, data).notes)
    assert ("in 1 of 6 dimensions" in notes) != standardize
    assert ("raise ggeur.privacy.secure_sums_fraction_bits" in notes) == standardize
    assert "to True" not in notes
