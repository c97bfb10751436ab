"""What the recorder keeps of a run is what each side got."""

from dataclasses import replace

import pytest
import torch
from private_words import LDA, SUMS

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.extras.audit.answers import audit_run
from federatedscope_ggeur.extras.audit.transcript import recorded, truth_of


def test_of_a_run_with_rounds(config):
    run = Run(config("ggeur.privacy.min_samples", 1))
    seen = recorded(run)
    assert list(seen.uploads) == list(seen.replies) == list(seen.updates) == [1, 2, 3]
    truth = truth_of(run)
    for k, upload in seen.uploads.items():
        assert upload.counts.tolist() == truth.counts(k).tolist()
    assert sorted(seen.geometry.shapes) == list(range(12))
    for updates in seen.updates.values():
        assert len(updates) == 3
        assert all(update.weight.abs().sum() > 0 for update in updates)
    assert seen.trains
    assert seen.head is None
    assert seen.lied is None
    assert len(run.history.rounds) == 3


@pytest.mark.slow
def test_of_answers_about_heads(config):
    """They are the bytes that the server got; A13 finds no withheld row in them."""
    few = ["federate.client_num", 9, "data.splitter_args", [{"alpha": 0.5}]]
    lda = ["ggeur.closed_form", "lda", "data.splitter", "lda"]
    run = Run(config(*lda, *few))
    seen, truth = recorded(run), truth_of(run)
    assert list(seen.hits) == list(seen.log_losses) == list(seen.domains)
    sent = {k: int(upload.counts.sum()) for k, upload in seen.uploads.items()}
    assert {k: told.scored for k, told in seen.hits.items()} == sent
    assert {k: told.rows for k, told in seen.log_losses.items()} == sent
    assert any(told.rows > told.scored for told in seen.hits.values())
    chosen = seen.form.candidates()[seen.loss_query.candidates[0]]
    details = run.history.round0.closed_form.details
    assert chosen.shrinkage == details["shrinkage"]
    (found,) = audit_run(seen, truth, 60, ["A13"])
    told = f"the numbers of {len(sent)} clients contain no withheld row"
    assert told in found.note


def test_of_secure_sums(config):
    run = Run(config(*LDA, *SUMS))
    seen = recorded(run)
    assert not seen.uploads
    assert not seen.updates
    assert not seen.trains
    assert seen.counts.tolist() == truth_of(run).totals.tolist()
    weight, bias = seen.head
    head = run.engine.server.head_params(closed_form=True)
    assert torch.equal(torch.cat([weight.flatten(), bias]), head)
    assert seen.head_classes == tuple(range(12))


def test_rows_to_compare_with_are_needed(config):
    run = Run(config())
    clients = [replace(held, test=held.test.select([])) for held in run.data.clients]
    run.data = replace(run.data, clients=clients)
    with pytest.raises(GGEURError, match="no test rows"):
        truth_of(run)
