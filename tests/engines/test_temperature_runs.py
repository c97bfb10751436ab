"""Runs whose heads have a temperature: what is asked, answered and said."""

from dataclasses import replace

import pytest
import torch
from chosen import chosen_federation

from federatedscope_ggeur import Results
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    ClosedFormClient,
)
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    ConfidenceQuery,
    LeaveOneOut,
    LossQuery,
)
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.models.closed_forms import temperatures
from federatedscope_ggeur.models.closed_forms.components import Components
from federatedscope_ggeur.reporting import results_table

pytestmark = pytest.mark.slow

ALL = ["ggeur.privacy.min_samples", 1]
IID = ["federate.client_num", 6, "data.splitter", "iid", "data.splitter_args", []]


@pytest.mark.parametrize("kind", ["lda", "ncm", "ridge", "mixture", "auto"])
def test_the_log_loss_of_left_out_rows_falls_and_no_class_changes(config, kind):
    settings = ["ggeur.closed_form", kind, *ALL, *IID]
    with_it = run(config(*settings))
    without = run(config(*settings, "ggeur.temperature", "none"))
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
    assert Results.from_json(with_it.to_json()).final == with_it.final
    assert "calibrated by rows left out" in results_table(with_it)
    assert "not calibrated" in results_table(without)


def test_the_head_is_divided_by_it(config):
    settings = ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3, *ALL]
    with_it = run(config(*settings))
    without = run(config(*settings, "ggeur.temperature", "none"))
    t = with_it.closed_form.details["temperature"]
    for one, other in zip(with_it.model.parameters(), without.model.parameters()):
        torch.testing.assert_close(one * t, other, rtol=1e-5, atol=1e-5)


def test_training_starts_from_the_divided_head(config):
    settings = ["ggeur.closed_form", "lda", "ggeur.init", "closed_form", *ALL]
    going = Run(config(*settings, "ggeur.steps", [], "federate.total_round_num", 2))
    results = going.follow(lambda record: None)
    assert results.final.calibrated_by == "start"
    assert "calibrated start" in results_table(results)


def test_secure_sums_and_confounded_labels_leave_it_out(config):
    sums = ["ggeur.privacy.secure_sums", "statistics"]
    sums += ["ggeur.privacy.secure_sums_radius", 40]
    sums += ["ggeur.privacy.secure_sums_max_rows", 4096]
    sums += ["ggeur.privacy.secure_sums_fraction_bits", 38]
    found = run(config("ggeur.closed_form", "lda", *sums)).closed_form.details
    assert "secure sums" in found["not_calibrated"]
    lds = ["federate.client_num", 3, "data.splitter", "lds"]
    lds += ["data.splitter_args", [{"alpha": 0.01}], *ALL]
    details = run(config("ggeur.closed_form", "lda", *lds)).closed_form.details
    assert details["confounded_share"] > 0.5
    assert "confounded" in details["not_calibrated"]


def test_the_worst_client_is_named(config):
    found = run(config("ggeur.closed_form", "lda", *ALL, *IID)).final.worst_client
    assert found.accuracy <= found.mean
    assert found.client in range(1, 7)


def asked(min_samples, **changes):
    """A client of a federation, and a query with its components."""
    federation = chosen_federation("ncm", min_samples)
    uploads = [
        (k, c, torch.bincount(c.labels, minlength=c.task.num_classes))
        for k, c in federation.clients.items()
    ]
    parts = []
    for k, client, counts in uploads:
        kept = (counts >= min_samples)[client.labels]
        held = ClassStatistics.from_embeddings(
            client.features[kept], client.labels[kept], client.task.num_classes
        )
        names = tuple(dict.fromkeys(c.domain for _, c, _ in uploads))
        parts.append(Components.of_client(held, k, client.domain, names))
    message = LeaveOneOut(Components.joined(parts).merged("class"))
    query = LossQuery(0, temperatures(1.0))
    return federation.clients[1], message, query


def test_a_client_answers_one_query_alone():
    client, message, query = asked(1)
    side = ClosedFormClient(client, {})
    first = side.log_losses(message, query)
    assert first.rows == len(client.labels)
    assert torch.equal(side.log_losses(None, query).losses, first.losses)
    other = LossQuery(0, temperatures(3.0))
    with pytest.raises(MessageError, match="reported log-losses before"):
        side.log_losses(None, other)
    with pytest.raises(MessageError, match="there is no candidate 7"):
        ClosedFormClient(client, {}).log_losses(
            message, LossQuery(7, query.temperatures)
        )


def test_a_client_that_was_started_again_tells_of_no_rows():
    client, _, query = asked(1)
    answer = ClosedFormClient(client, {}).log_losses(None, query)
    assert answer.rows == 0
    assert not answer.losses.any()


@pytest.mark.parametrize("min_samples", [3, 6, 7])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_no_answer_depends_on_rows_of_withheld_classes(min_samples, scale):
    """Whatever components and temperatures a server makes up."""
    client, message, query = asked(min_samples)
    parts = message.components
    made_up = LeaveOneOut(replace(parts, means=parts.means * 3, scatter=None))
    query = LossQuery(0, tuple(scale * t for t in query.temperatures))
    is_withheld = (client.counts < min_samples)[client.labels]
    assert is_withheld.any()

    def answers(components):
        side = ClosedFormClient(client, {})
        hits = side.hit_counts(components)
        return hits.to_bytes() + side.log_losses(None, query).to_bytes()

    before = [answers(message), answers(made_up)]
    assert before[0] != before[1]
    client.features[is_withheld] = 100 * torch.randn_like(client.features[is_withheld])
    assert [answers(message), answers(made_up)] == before
    side = ClosedFormClient(client, {})
    scored = side.hit_counts(message).scored
    assert scored == int((~is_withheld).sum()) < len(client.labels)
    assert side.log_losses(None, query).rows == scored


def test_few_rows_are_not_told_of():
    client, message, query = asked(1)
    client.settings = replace(client.settings, min_samples=1000)
    answer = ClosedFormClient(client, {}).log_losses(message, query)
    assert answer.rows == 0
    assert not answer.losses.any()


def test_clients_count_how_sure_the_head_is_if_asked(config):
    settings = ["ggeur.closed_form", "ridge", *ALL, *IID]
    details = run(config(*settings, "ggeur.confidences", True)).closed_form.details
    bins = details["confidence_bins"]
    assert len(bins) == 64
    assert sum(bins) == details["temperature_rows"]
    assert "confidence_bins" not in run(config(*settings)).closed_form.details
    with pytest.raises(ConfigError, match=r"ggeur\.confidences"):
        run(config(*settings, "ggeur.confidences", True, "ggeur.temperature", "none"))


def test_a_client_counts_confidences_of_one_head_alone():
    client, message, query = asked(1)
    side = ClosedFormClient(client, {})
    side.log_losses(message, query)
    first = side.confidences(ConfidenceQuery(0, 0.5))
    scores = message.scores(side.form, 0)
    sure = torch.cat(
        [
            (scores(rows)[0] / 0.5).softmax(dim=1).amax(dim=1)
            for rows in side.parts(message)
        ]
    )
    expected = torch.histc(sure - 1e-12, 64, 0.0, 1.0)
    assert torch.equal(first.counts.double(), expected.double())
    assert torch.equal(side.confidences(ConfidenceQuery(0, 0.5)).counts, first.counts)
    with pytest.raises(MessageError, match="reported confidences before"):
        side.confidences(ConfidenceQuery(0, 0.6))
