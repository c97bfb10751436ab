"""Components down, hit counts up: there and back, and what is refused."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from by_bytes import held
from chosen import chosen_federation
from spoilt_messages import CLASSES, DIM, SCHEMA, pack, refusal

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Client, MemoryBudget
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
    SetMaker,
)
from federatedscope_ggeur.federation.exchanges.augmentation.keys import SetSettings
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    HeldOut,
)
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormClient,
    rounded_hits,
)
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import LEAVE_ONE_OUT
from federatedscope_ggeur.federation.exchanges.closed_form.messages import (
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
    OneCandidate,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    StatisticsClient,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import CLOSED_FORMS, MLPHead, Model, to_vector
from federatedscope_ggeur.models.closed_forms import (
    ComponentBook,
    Components,
    temperatures,
)
from federatedscope_ggeur.models.closed_forms.left_out import (
    TEMPERATURES,
    confidence_edges,
)
from federatedscope_ggeur.models.folding import AverageHead, Averaging, averaged

#: What tells two components apart.
PLACE = ("labels", "clients", "domains")
TENSORS = (*PLACE, "counts", "means")


def components():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, DIM, generator=generator) + 5
    labels = torch.arange(30) % 2 + 1
    parts = Components.joined(
        Components.of_client(
            Statistics.from_embeddings(features[k::3], labels[k::3], CLASSES),
            k + 1,
            "ab"[k % 2],
            ("a", "b"),
        )
        for k in range(3)
    )
    whole = Statistics.from_embeddings(features, labels, CLASSES)
    return parts.with_scatters_of(whole)


@pytest.mark.parametrize("grain", ["client", "domain", "class"])
def test_components_arrive_to_the_bit(grain):
    sent = components().merged(grain)
    data = LeaveOneOut(sent).to_bytes()
    found = LeaveOneOut.from_bytes(data, SCHEMA)
    for name in TENSORS:
        assert torch.equal(getattr(found.components, name), getattr(sent, name))
    upper = torch.triu(sent.scatter)
    assert torch.equal(torch.triu(found.components.scatter), upper)
    assert torch.equal(found.components.scatter, found.components.scatter.T)
    assert torch.equal(found.components.class_scatters, sent.class_scatters)
    assert found.components.domain_names == ("a", "b")
    assert found.equals(LeaveOneOut.from_bytes(data, SCHEMA))


def test_a_scatter_that_is_not_needed_does_not_travel():
    sent = components()
    without = replace(sent, scatter=None, class_scatters=None)
    data = LeaveOneOut(without).to_bytes()
    assert len(data) < len(LeaveOneOut(sent).to_bytes())
    arrived = LeaveOneOut.from_bytes(data, SCHEMA).components
    assert arrived.scatter is arrived.class_scatters is None


def test_what_scores_rows_is_made_once_for_clients_of_one_form():
    message = LeaveOneOut(components())
    form = CLOSED_FORMS["lda"]()
    assert message.scores(form) is message.scores(form)
    assert message.scores(CLOSED_FORMS["ridge"]()) is not message.scores(form)


@pytest.mark.parametrize(
    ("field", "tensors"),
    [
        ("counts", {"counts": torch.tensor([2, 0])}),
        ("counts", {"counts": torch.tensor([2, -1])}),
        ("means", {"means": torch.full((2, DIM), 1e16, dtype=torch.float64)}),
        ("clients", {"clients": torch.tensor([1, -2])}),
        ("domains", {"domains": torch.tensor([0, 2])}),
        ("labels", {"labels": torch.tensor([0, CLASSES])}),
        ("scatter", {"scatter": torch.full((10,), 1e50, dtype=torch.float64)}),
        ("scatter", {"scatter": torch.ones(DIM, DIM, dtype=torch.float64)}),
        ("class_scatters", {"class_scatters": torch.ones(3, 10, dtype=torch.float64)}),
        # Two components of one place.
        ("labels", {name: torch.tensor([0, 0]) for name in PLACE}),
    ],
)
def test_components_that_cannot_be_are_refused(field, tensors):
    assert refusal(LeaveOneOut, pack(LeaveOneOut, tensors=tensors)).field == field


@pytest.mark.parametrize(
    ("field", "numbers", "hits"),
    [
        ("hits", {}, [6, 0]),
        ("hits", {}, [0, -1]),
        ("scored", {"scored": 7}, [5, 0]),
        # Rows of absent classes are among those that are not scored.
        ("absent", {"rows": 9, "scored": 5, "absent": 5}, [5, 0]),
    ],
)
def test_hits_and_rows_lie_within_the_rows(field, numbers, hits):
    data = pack(HitCounts, numbers, {"hits": torch.tensor(hits)})
    assert refusal(HitCounts, data).field == field


@pytest.mark.parametrize(
    ("counts", "field"),
    [
        (HitCounts(3, 10, torch.tensor([1]), 0, 10), "hits"),
        (HitCounts(3, 7, torch.tensor([1, 2]), 0, 7), "rows"),
        (HitCounts(3, 9, torch.tensor([1, 2]), 2, 9), "rows"),
        (HitCounts(3, 9, torch.tensor([1, 2]), 0, 7), "rows"),
        (HitCounts(4, 10, torch.tensor([1, 2]), 0, 10), "client"),
    ],
)
def test_counts_that_do_not_fit_the_federation_are_refused(counts, field):
    server = SimpleNamespace(merged=SimpleNamespace(rows={1: 4, 3: 8}))
    exchange = SimpleNamespace(
        server=server, solver=SimpleNamespace(candidates=("one", "two"))
    )
    request = Request(LEAVE_ONE_OUT, 0, {})
    with pytest.raises(MessageError) as caught:
        LEAVE_ONE_OUT.validate(exchange, request, counts)
    assert caught.value.field == field
    fine = HitCounts(3, 8, torch.tensor([1, 2]), 0, 8)
    LEAVE_ONE_OUT.validate(exchange, request, fine)


WEIGHTED = replace(SCHEMA, statistics=StatisticsForm("pooled", weighted=True))


def test_weights_of_components_arrive_to_the_bit():
    sent = components()
    sent = replace(sent, sums=sent.counts.double() * 0.3)
    data = LeaveOneOut(sent).to_bytes()
    found = LeaveOneOut.from_bytes(data, WEIGHTED).components
    assert torch.equal(found.sums, sent.sums)
    assert torch.equal(found.merged("class").sums, sent.merged("class").sums)
    with pytest.raises(MessageError, match="weights"):
        LeaveOneOut.from_bytes(data, SCHEMA)


@pytest.mark.parametrize(
    ("hits", "weight", "field"),
    [
        ([0.0, 2.5, 1.5], 2.5, ""),
        ([0.0, 2.6, 1.5], 2.5, "hits"),
        ([0.0, -0.1, 1.5], 2.5, "hits"),
        ([0.0, float("nan"), 1.5], 2.5, "hits"),
        ([0, 2, 1], 2.5, "hits"),
        ([0.0, 0.0, 0.0], 0.0, "weight"),
        ([0.0, 2.5, 1.5], None, "weight"),
    ],
)
def test_weighted_hits_lie_within_the_weight_of_the_rows(hits, weight, field):
    kind = torch.float64 if isinstance(hits[0], float) else torch.int64
    sent = HitCounts(1, 9, torch.tensor(hits, dtype=kind), 0, 4, 0, weight)
    if not field:
        found = HitCounts.from_bytes(sent.to_bytes(), WEIGHTED, "client 1")
        assert torch.equal(found.hits, sent.hits)
        assert (found.weight, found.scored) == (weight, 4)
        return
    with pytest.raises(MessageError) as refused:
        HitCounts.from_bytes(sent.to_bytes(), WEIGHTED, "client 1")
    assert refused.value.field == field


def test_weighted_hits_are_rounded_to_a_64th_of_the_mean_weight():
    whole = torch.tensor([0.0, 17.0, 31.0, 40.0]).double()
    assert torch.equal(rounded_hits(whole, 40.0, 20), whole)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, 20)
    total = float(weights.sum())
    hit = torch.tensor(np.cumsum(weights))
    found = rounded_hits(hit, total, 20)
    assert (found - hit).abs().max() <= total / 20 / 64 / 2
    assert found[-1] == total
    for scale in (1e-3, 1e6):
        scaled = rounded_hits(hit * scale, total * scale, 20)
        assert len(set((scaled / total).tolist())) == 20
        assert not torch.equal(scaled[:-1], hit[:-1] * scale)


# What a client tells of its rows for a temperature: of one head, of none withheld.


def asked(min_samples, kind="ncm"):
    """A client of a federation, and a query with its components."""
    federation = chosen_federation(kind, min_samples)
    book = ComponentBook(tuple(federation.server.client_domains.values()))
    for k in federation.clients:
        sent = federation.side(k, StatisticsClient).statistics()
        book.add(sent.statistics, k, sent.domain)
    message = LeaveOneOut(book.components().merged("class"))
    return federation.clients[1], message, LossQuery((0,), (temperatures(1.0),))


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


def test_hits_of_weighted_rows_come_with_the_weight_of_all():
    client, message, _ = asked(1)
    weights = 0.5 + torch.arange(len(client.labels)) % 2
    rows = held(1, client.domain, client.features, client.labels, weights.double())
    weighted = Client(rows, client.settings, MemoryBudget(1e9))
    assert ClosedFormClient(client, {}).hit_counts(message).weight is None
    assert ClosedFormClient(weighted, {}).hit_counts(message).weight == weights.sum()


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
    fewer = {name: getattr(parts, name)[kept] for name in TENSORS}
    message = LeaveOneOut(replace(parts, **fewer))
    rows = int(client.counts[:missing].sum())
    for least, told in ((1, rows), (max(rows, 1), rows), (rows + 1, 0)):
        client.settings = replace(client.settings, min_samples=least)
        assert ClosedFormClient(client, {}).hit_counts(message).absent == told


@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_a_client_counts_confidences_of_one_head_alone(floor):
    client, message, query = asked(1)
    dim, classes = client.features.shape[1], message.components.num_classes
    side = ClosedFormClient(client, {})
    side.log_losses(message, query)
    with pytest.raises(MessageError, match="the head of this run has no floor"):
        ClosedFormClient(client, {}).confidences(OneCandidate(0, 0.5, floor=0.2))
    with pytest.raises(MessageError, match="the head of this run has no floor"):
        ClosedFormClient(client, {}).log_losses(
            message, replace(query, has_floors=True)
        )
    client.scored_model = AverageHead(dim, classes)
    head = OneCandidate(0, 0.5, floor=floor)
    first = side.confidences(head)
    scores = message.scores(side.form, 0)
    sure = torch.cat(
        [
            Model.probabilities(scores(rows)[0] / 0.5).amax(dim=1)
            for rows in side.parts(message)
        ]
    )
    sure = (1 - floor) * sure + floor / classes
    ends = [0.0, *confidence_edges().tolist()]
    pairs = zip(ends, ends[1:])
    expected = [int(((low < sure) & (sure <= high)).sum()) for low, high in pairs]
    assert first.counts.tolist() == expected
    assert torch.equal(side.confidences(head).counts, first.counts)
    with pytest.raises(MessageError, match="reported confidences before"):
        side.confidences(replace(head, temperature=0.6))


def test_logits_of_training_rows_are_those_of_rows_left_out():
    """Rows of withheld classes are scored by all others: they are in no statistics.
    The same holds for all rows of a client whose statistics are in no sum."""
    client, message, _ = asked(6)
    is_sent = (client.counts >= 6)[client.labels]
    assert 0 < is_sent.sum() < len(is_sent)
    head = OneCandidate(0, 0.5)
    everything = torch.ones(len(client.labels), dtype=torch.bool)
    found = ClosedFormClient(client, {}).left_out(message, head, everything)
    sides = ClosedFormClient(client, {}), ClosedFormClient(client, {})
    (left_out, _), score = sides[0].parts(message), message.scores(sides[0].form, 0)
    outside = replace(
        left_out,
        features=client.features[~is_sent],
        labels=client.labels[~is_sent],
        inside=torch.zeros(int((~is_sent).sum()), dtype=torch.bool),
    )
    for rows, kept in ((left_out, is_sent), (outside, ~is_sent)):
        torch.testing.assert_close(found[kept], score(rows)[0] / 0.5)
    unsummed = OneCandidate(0, 0.5, False)
    none = ClosedFormClient(client, {}).left_out(message, unsummed, is_sent)
    everyone = replace(left_out, inside=torch.zeros_like(left_out.inside))
    torch.testing.assert_close(none, score(everyone)[0] / 0.5)
    doubled = replace(message.components, means=2 * message.components.means)
    with pytest.raises(MessageError, match="with other components"):
        sides[0].left_out(LeaveOneOut(doubled), head, everything)
    with pytest.raises(MessageError, match="there is no candidate 1"):
        sides[1].left_out(message, OneCandidate(1, 0.5), everything)
    nothing = LeaveOneOut(replace(message.components, scatter=None))
    client.merged, client.settings = None, chosen_federation("lda").settings
    with pytest.raises(MessageError, match="components"):
        ClosedFormClient(client, {}).left_out(nothing, head, everything)
    for parts in ((message, head), (message, None), (None, head)):
        with pytest.raises(MessageError, match="needs that head and an MLP"):
            AugmentationClient(client, {}).prepare(None, None, None, *parts)
    AugmentationClient(client, {}).prepare(None, None, held_out=HeldOut(0.1))
    with pytest.raises(MessageError, match="with another head or share before"):
        AugmentationClient(client, {}).prepare(None, None, held_out=HeldOut(0.11))


def test_who_trains_on_no_withheld_rows_holds_none_out():
    client, *_ = asked(1)
    own = replace(client.settings.of(SetSettings), train_withheld=False)
    client.settings = client.settings.with_own(own)
    AugmentationClient(client, {}).prepare(None, None, held_out=HeldOut(0.15))
    assert not client.held_out().any()


def test_losses_that_rows_cannot_have_are_refused():
    """The smoothed probability of the right class is at least .001 / C."""
    most = math.log(CLASSES / 0.001) * 64
    weighted = replace(SCHEMA, statistics=replace(SCHEMA.statistics, weighted=True))
    of_two = (SCHEMA, None, 2 * most), (weighted, 0.5, most / 2)
    for schema, weight, largest in of_two:
        for losses in (int(largest), int(largest) + 2):
            found = torch.full((1, TEMPERATURES), losses)
            data = LogLosses(1, 2, found, weight).to_bytes()
            if losses <= largest:
                assert LogLosses.from_bytes(data, schema).losses.max() == losses
            else:
                with pytest.raises(MessageError, match="rows can have"):
                    LogLosses.from_bytes(data, schema)
    nothing = LogLosses(3, 0, torch.ones(1, TEMPERATURES, dtype=torch.int64))
    assert refusal(LogLosses, nothing.to_bytes()).field == "losses"


def test_rows_that_are_drawn_have_no_offsets():
    client, message, _ = asked(1, "lda")
    dim, classes = client.features.shape[1], message.components.num_classes
    client.model = MLPHead(dim, classes, 5)
    drawn = Geometry({}), None, None, message, OneCandidate(0, 0.5, gives_offsets=True)
    with pytest.raises(MessageError, match="rows that are drawn have no offsets"):
        AugmentationClient(client, {}).prepare(*drawn)
    beside = OneCandidate(0, 0.5)
    AugmentationClient(client, {}).prepare(None, None, None, message, beside)
    assert SetMaker(None, None)(client).features.shape[1] == dim


@pytest.mark.parametrize("with_offsets", [True, False])
def test_rows_held_out_are_in_no_set_and_scored_by_heads_that_have_not_seen_them(
    with_offsets,
):
    """The one-shot head is computed again without the row; the MLP gets its offsets.

    There is a loss for each floor and each share of the one-shot head."""
    client, message, query = asked(1)
    client.held_share, dim = 0.15, client.features.shape[1]
    classes = message.components.num_classes
    held = client.held_out()
    assert torch.equal(client.held_out(), held)
    assert held.sum() == round(0.15 * len(client.labels)) == 3
    trained_on = SetMaker(None, None)(client)
    assert torch.equal(trained_on.features, client.features[~held])
    assert torch.equal(trained_on.own_labels, client.labels[~held])

    mlp = MLPHead(dim, classes, 5).reset(torch.Generator().manual_seed(0))
    left = AverageHead(dim, classes, 5)
    vector = to_vector(left.alone(mlp, trained=True))
    if with_offsets:
        client.merged, client.one_shot = message, OneCandidate(0, 0.5)
        vector = averaged(left, to_vector(left), vector, Averaging(with_offsets=True))
    client.scored_model = left
    heads = [(0, 0)]
    if with_offsets:
        shares, floors = (0, 0.25, 0.5, 0.75, 1), (0, 0.02, 0.05, 0.1, 0.2)
        heads = [(share, floor) for share in shares for floor in floors]
    other, query = (
        LossQuery(tuple(range(many)), query.temperatures * many, with_offsets)
        for many in (2, 5 if with_offsets else 1)
    )
    with pytest.raises(MessageError, match="there are no such heads"):
        EvaluationClient(client, {}).validation_losses(Broadcast(4, vector), other)
    answer = EvaluationClient(client, {}).validation_losses(Broadcast(4, vector), query)
    logs = mlp(client.features[held]).detach().double()
    trained, first = logs.softmax(1), torch.zeros_like(logs)
    if with_offsets:
        parts, form = message.components, CLOSED_FORMS["ncm"]()
        for i, row in enumerate(torch.nonzero(held).flatten()):
            c, x = client.labels[row], client.features[row].double()
            counts, means = parts.counts.clone(), parts.means.clone()
            means[c] = (counts[c] * means[c] - x) / (counts[c] - 1)
            counts[c] -= 1
            head = form.solve(Statistics.of_means(counts, means)).model
            one_shot = (head(x[None].float())[0].detach().double() / 0.5).softmax(0)
            offsets = torch.log(0.999 * one_shot + 0.001 / classes) / 2
            first[i], trained[i] = one_shot, (logs[i] + offsets).softmax(0)
    own = torch.arange(3), client.labels[held]
    assert answer.rows == 3
    assert len(answer.losses) == len(heads)
    for (share, floor), found in zip(heads, answer.losses.tolist()):
        head = (share * first + (1 - share) * trained).log()
        wanted = []
        for t in query.temperatures[0]:
            raised = (1 - floor) * (head / t).softmax(1)[own] + floor / classes
            wanted.append(-64 * (0.999 * raised + 0.001 / classes).log().sum())
        assert found == pytest.approx([float(each) for each in wanted], abs=0.51)
    # Enough of them, or none.
    assert len(client.labels) == 20
    client.held_share = 0.3
    for threshold, drawn in ((6, 6), (7, 0)):
        client.settings = replace(client.settings, min_samples=threshold)
        assert client.held_out().sum() == drawn
