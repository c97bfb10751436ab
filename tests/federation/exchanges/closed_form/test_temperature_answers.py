"""What a client tells of its rows for a temperature: of one head, of none withheld."""

from dataclasses import replace

import pytest
import torch
from chosen import chosen_federation

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
    ConfidenceQuery,
    LeaveOneOut,
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    ClosedFormClient,
)
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.closed_forms import temperatures
from federatedscope_ggeur.models.closed_forms.components import Components
from federatedscope_ggeur.models.closed_forms.left_out import confidence_edges


def asked(min_samples):
    """A client of a federation, and a query with its components."""
    federation = chosen_federation("ncm", min_samples)
    clients = federation.clients
    names = tuple(dict.fromkeys(c.domain for c in clients.values()))
    parts = []
    for k, client in clients.items():
        classes = client.task.num_classes
        counts = torch.bincount(client.labels, minlength=classes)
        kept = (counts >= min_samples)[client.labels]
        held = Statistics.from_embeddings(
            client.features[kept], client.labels[kept], classes
        )
        parts.append(Components.of_client(held, k, client.domain, names))
    message = LeaveOneOut(Components.joined(parts).merged("class"))
    return clients[1], message, LossQuery((0,), (temperatures(1.0),))


def test_a_client_answers_one_query_alone():
    client, message, query = asked(1)
    side = ClosedFormClient(client, {})
    first = side.log_losses(message, query)
    assert first.rows == len(client.labels)
    assert torch.equal(side.log_losses(None, query).losses, first.losses)
    other = LossQuery((0,), (temperatures(3.0),))
    with pytest.raises(MessageError, match="reported log-losses before"):
        side.log_losses(None, other)
    with pytest.raises(MessageError, match="there is no candidate 7"):
        ClosedFormClient(client, {}).log_losses(
            message, LossQuery((7,), query.temperatures)
        )


def test_one_that_was_started_again_or_holds_few_rows_tells_of_none():
    client, message, query = asked(1)
    for given, least in ((None, 1), (message, 1000)):
        client.settings = replace(client.settings, min_samples=least)
        answer = ClosedFormClient(client, {}).log_losses(given, query)
        assert answer.rows == 0
        assert not answer.losses.any()


@pytest.mark.parametrize("min_samples", [3, 6, 7])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_no_answer_depends_on_rows_of_withheld_classes(min_samples, scale):
    """Whatever components and temperatures a server makes up."""
    client, message, query = asked(min_samples)
    parts = message.components
    made_up = LeaveOneOut(replace(parts, means=parts.means * 3, scatter=None))
    query = LossQuery((0,), (tuple(scale * t for t in query.temperatures[0]),))
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


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_rows_of_classes_that_nobody_sent_are_counted_from_the_threshold_on(missing):
    client, message, _ = asked(1)
    parts = message.components
    kept = parts.labels >= missing
    fewer = {
        name: getattr(parts, name)[kept]
        for name in ("labels", "counts", "means", "clients", "domains")
    }
    message = LeaveOneOut(replace(parts, **fewer))
    rows = int(client.counts[:missing].sum())
    for least, told in ((1, rows), (max(rows, 1), rows), (rows + 1, 0)):
        client.settings = replace(client.settings, min_samples=least)
        assert ClosedFormClient(client, {}).hit_counts(message).absent == told


def test_a_client_counts_confidences_of_one_head_alone():
    client, message, query = asked(1)
    side = ClosedFormClient(client, {})
    side.log_losses(message, query)
    first = side.confidences(ConfidenceQuery(0, 0.5))
    scores = message.scores(side.form, 0)
    sure = torch.cat(
        [
            Model.probabilities(scores(rows)[0] / 0.5).amax(dim=1)
            for rows in side.parts(message)
        ]
    )
    ends = [0.0, *confidence_edges().tolist()]
    pairs = zip(ends, ends[1:])
    expected = [int(((low < sure) & (sure <= high)).sum()) for low, high in pairs]
    assert first.counts.tolist() == expected
    assert torch.equal(side.confidences(ConfidenceQuery(0, 0.5)).counts, first.counts)
    with pytest.raises(MessageError, match="reported confidences before"):
        side.confidences(ConfidenceQuery(0, 0.6))
