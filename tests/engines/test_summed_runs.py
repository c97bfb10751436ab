"""Whole runs in which statistics are secure sums , embedded."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.base import all_kinds, answered_kinds
from federatedscope_ggeur.federation.exchanges.secure_sums.exchange import SumsClient
from federatedscope_ggeur.reporting import numbers, privacy_line

SUMS = ["ggeur.privacy.secure_sums", "statistics", "ggeur.privacy.secure_sums_radius"]
SUMS += [40, "ggeur.privacy.secure_sums_max_rows", 4096]
SUMS += ["ggeur.privacy.secure_sums_fraction_bits", 38]
LDA = ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3]
GGEUR = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]


def messages_of(going):
    """Results of a run, and of all its messages kind, client, what goes down and up."""
    found = []

    def note(request, replies):
        for k, up in replies.items():
            found.append((request.kind.name, k, request.parts[k], up))

    going.engine.listen = note
    return going.follow(lambda record: None), found


@pytest.mark.parametrize(
    "form", [["lda", "ggeur.lda.shrinkage", 0.3], ["ridge", "ggeur.ridge.strength", 1]]
)
def test_the_head_is_that_of_all_rows_in_one_place(config, form):
    settings = ["ggeur.closed_form", *form]
    sums = run(config(*settings, *SUMS))
    alike = ["ggeur.privacy.min_samples", 1, "ggeur.temperature", "none"]
    plain = run(config(*settings, *alike))
    for one, other in zip(sums.model.parameters(), plain.model.parameters()):
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * size)
    assert sums.round0.sums.classes == list(range(12))
    assert sums.round0.sums.roster == [1, 2, 3]


def test_nothing_of_a_single_client_goes_up_in_the_clear(config):
    _, found = messages_of(Run(config(*LDA, *SUMS)))
    kinds = {kind for kind, *_ in found}
    asked = {"sum_keys", "sum_counts", "sum_means", "sum_pooled", "evaluate"}
    assert kinds == asked


def test_a_client_of_these_settings_answers_with_no_statistics_of_its_own(config):
    going = Run(config(*SUMS, *GGEUR))
    names = {kind.name for kind in answered_kinds(going.settings.demands)}
    others = {"statistics", "totals", "hit_counts", "log_losses", "calibrate"}
    others |= {"validation_losses", "personal_losses", "personal_head", "confidences"}
    others |= {"release_moments", "release_spread", "sum_moments", "sum_spread"}
    others |= {"book_statistics", "book_receipt"}
    assert not names & others
    assert names | others == {kind.name for kind in all_kinds()}
    plain = Run(config())
    assert not any(
        "sum" in kind.name for kind in answered_kinds(plain.settings.demands)
    )


def test_the_order_of_clients_changes_nothing(config):
    settings = [*SUMS, *GGEUR, "federate.client_num", 6, "ggeur.space", "standard"]
    one = run(config(*settings))
    other = run(config(*settings), order=lambda given: sorted(given)[::-1])
    windowed = run(config(*settings, "ggeur.round0_window", 1))
    assert numbers(one) == numbers(other)
    for results in (other, windowed):
        for a, b in zip(one.model.parameters(), results.model.parameters()):
            assert torch.equal(a, b)


@pytest.mark.parametrize("space", ["raw", "standard", "whitened"])
@pytest.mark.parametrize(
    "settings",
    [
        [*GGEUR],
        ["ggeur.geometry", "pooled", "ggeur.steps", [1]],
        [*LDA, "ggeur.init", "closed_form", "ggeur.steps", []],
        [*LDA, "ggeur.init", "closed_form", *GGEUR],
        ["ggeur.closed_form", "ncm", "ggeur.init", "closed_form", "ggeur.steps", []],
    ],
    ids=str,
)
def test_training_goes_on_from_sums(config, settings, space):
    least = ["ggeur.privacy.min_samples", 1]  # nothing is kept back
    results = run(config(*settings, *SUMS, *least, "ggeur.space", space))
    assert len(results.rounds) == 3
    assert results.final.avg > 0.5
    assert results.round0.totals_bytes_up == 0
    assert results.privacy.guarantee == "sums"
    assert "training rounds escape the masks" in privacy_line(results.privacy)


def test_the_space_is_that_of_all_rows(config):
    settings = [*SUMS, *GGEUR, "ggeur.privacy.min_samples", 1]
    going = Run(config(*settings, "ggeur.space", "standard"))
    results = going.follow(lambda record: None)
    assert results.round0.sums.kept_back == []
    rows = torch.cat([c.train.features for c in going.data.clients]).double()
    centre = rows.mean(dim=0)
    space = going.engine.server.space
    torch.testing.assert_close(space.centre, centre, rtol=0, atol=1e-10)
    distance = float((rows - centre).square().sum(1).mean().sqrt())
    assert results.round0.space["distance"] == pytest.approx(distance, rel=1e-9)


@pytest.mark.usefixtures("in_units")
def test_sums_give_each_dimension_a_scale(config):
    settings = [*SUMS, *GGEUR, "ggeur.privacy.min_samples", 1]
    settings += ["ggeur.privacy.secure_sums_radius", 16384]
    settings += ["ggeur.privacy.secure_sums_fraction_bits", 20]
    going = Run(config(*settings, "ggeur.space", "standard"))
    results = going.follow(lambda record: None)
    assert results.round0.space["scales"] == "each"
    rows = torch.cat([c.train.features for c in going.data.clients]).double()
    expected = (40 / rows.shape[1]) ** 0.5 / rows.std(dim=0, unbiased=False)
    found = going.engine.server.space.scales
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_step_2_is_around_the_mean_of_all_others(config):
    settings = [*SUMS, *GGEUR, "ggeur.space", "raw", "ggeur.privacy.min_samples", 1]
    going = Run(config(*settings))
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


def skewed(config, *settings):
    """Of most classes one client of nine has nearly all rows."""
    splitter = ["data.splitter_args", "[{'alpha': 0.05}]"]
    return Run(config(*SUMS, *splitter, "federate.client_num", 9, *settings))


def test_a_class_that_is_kept_back_goes_down_with_nobody(config):
    going = skewed(config, *GGEUR)
    results, found = messages_of(going)
    kept = results.round0.sums.kept_back
    assert kept, "no class is kept back; take another alpha"
    counts = going.held.counts
    rest = counts.sum(axis=0) - counts
    near = ((rest > 0) & (rest < 5)).any(axis=0) & (counts.sum(axis=0) >= 5)
    assert kept == np.flatnonzero(near).tolist()
    schema = going.engine.server.schema
    from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
        Prototypes,
    )

    for kind, _, parts, _ in found:
        if kind == "prepare":
            sent = Prototypes.from_bytes(parts[1], schema)
            assert not set(sent.labels.tolist()) & set(kept)


@pytest.mark.parametrize(
    ("settings", "leaves_out"),
    [
        (LDA, False),
        (["ggeur.closed_form", "ncm"], True),
        ([*LDA, "ggeur.init", "closed_form", *GGEUR], True),
    ],
    ids=["lda alone", "ncm", "lda and a shape"],
)
def test_heads_leave_out_what_they_would_tell(config, settings, leaves_out):
    results = skewed(config, *settings).follow(lambda record: None)
    sums = results.round0.sums
    left_out = 12 - len(sums.classes) + (len(sums.kept_back) if leaves_out else 0)
    assert results.closed_form.details["left_out"] == left_out


def test_where_one_client_owns_nearly_everything_nothing_goes_down(config):
    going = Run(config(*SUMS, *LDA, "federate.client_num", 3))
    for number in (2, 3):
        # What the other two hold is little.
        client, handler = (
            held[number] for held in (going.engine.clients, going.engine._handlers)
        )
        rows = handler.side(SumsClient).participant._rows
        few = client.features[:4], client.labels[:4]
        handler.side(SumsClient).participant._rows = type(rows)(*few, rows.settings)
    with pytest.raises(GGEURError, match="owns all but a few of the rows"):
        going.follow(lambda record: None)


def test_withheld_rows_are_those_below_the_threshold_over_all_clients(config):
    settings = [*SUMS, *LDA, "ggeur.privacy.min_samples", 6]
    going = Run(config(*settings))
    results = going.follow(lambda record: None)
    totals = going.held.counts.sum(axis=0)
    assert results.round0.sums.withheld_rows == totals[totals < 6].sum()
    assert results.round0.sums.classes == np.flatnonzero(totals >= 6).tolist()
    assert results.round0.withheld_pairs is None
    more = Run(config(*SUMS, *LDA, "ggeur.privacy.min_samples", 7))
    assert any("rows over all clients" in note for note in more.notes)


def test_the_same_seed_gives_the_same_numbers_although_masks_are_fresh(config):
    settings = [*SUMS, *GGEUR]
    first, found = messages_of(Run(config(*settings)))
    second, again = messages_of(Run(config(*settings)))
    assert numbers(first) == numbers(second)
    for (kind, _, _, one), (_, _, _, other) in zip(found, again):
        assert (one != other) == kind.startswith("sum_")


def test_a_run_goes_on_from_its_checkpoint(config, tmp_path):
    settings = [*SUMS, *GGEUR, "ggeur.space", "standard"]
    saved = ["federate.save_to", tmp_path / "kept"]
    whole = run(config(*settings, "federate.total_round_num", 4))
    run(config(*settings, *saved, "federate.total_round_num", 2))
    data = (tmp_path / "kept").read_bytes() + (tmp_path / "kept.round0").read_bytes()
    assert b"masked" not in data
    on = ["federate.restore_from", tmp_path / "kept", "federate.total_round_num", 4]
    resumed = run(config(*settings, *on))
    for a, b in zip(whole.model.parameters(), resumed.model.parameters()):
        assert torch.equal(a, b)
    assert resumed.round0.sums == whole.round0.sums
