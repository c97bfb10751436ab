"""What a client tells of its validation rows, and of rows of classes nobody sent."""

import pytest
from by_bytes import Federation, make_client_data, make_rows
from torch.nn import functional as F

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    DecodedParts,
)
from federatedscope_ggeur.federation.exchanges.closed_form.choice import LossQuery
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EVALUATE,
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models.closed_forms import temperatures


def test_a_client_answers_for_one_head_and_enough_rows_alone():
    federation = Federation(make_client_data(), min_samples=4).round0()
    server, client = federation.server, federation.clients[1]
    params = server.head_params()
    query = LossQuery((0,), (temperatures(16.0),))
    rows = Embeddings(*make_rows(40, seed=9), "domain 1")
    side = EvaluationClient(client, {"val": rows})
    answer = side.validation_losses(Broadcast(4, params), query)
    assert answer.rows == len(rows)
    logits = server.scored_model.at(params)(rows.features).double()
    logs = F.cross_entropy(
        logits / query.temperatures[0][0], rows.labels, reduction="none"
    )
    wanted = -(0.999 * (-logs).exp() + 0.001 / logits.shape[1]).log().sum()
    assert float(answer.losses[0, 0]) == pytest.approx(64 * float(wanted), abs=0.51)
    with pytest.raises(MessageError, match="asked for before, for another head"):
        side.validation_losses(Broadcast(4, params + 1), query)
    for few, told in ((3, 0), (4, 4)):
        side = EvaluationClient(client, {"val": rows.select(range(few))})
        answer = side.validation_losses(Broadcast(4, params), query)
        assert answer.rows == told
        assert bool(answer.losses.any()) == bool(told)


def test_a_client_tells_rows_apart_for_one_list_of_classes_alone():
    federation = Federation(make_client_data(), min_samples=4).round0()
    client, params = federation.clients[1], federation.server.head_params()
    rows = Embeddings(*make_rows(40, seed=9), "domain 1")
    side = EvaluationClient(client, {"test": rows})
    asked = Broadcast(4, params, absent=(0,))
    assert Broadcast.from_bytes(asked.to_bytes(), client.schema).absent == (0,)
    report = side.evaluate(asked)
    told = report.scores["test"].of_sent
    assert told.rows == int((rows.labels != 0).sum()) < 40
    data = report.to_bytes()
    again = ScoreReport.from_bytes(data, client.schema, "client 1")
    assert again.scores == report.scores
    side.evaluate(Broadcast(5, params))
    with pytest.raises(MessageError, match="other classes were told apart before"):
        side.evaluate(Broadcast(6, params, absent=(1,)))


def test_a_restart_opens_no_other_list_of_classes():
    """Round 0 is answered again after a restart, also if it named no classes."""
    federation = Federation(make_client_data(), min_samples=4).round0()
    client, params = federation.clients[1], federation.server.head_params()
    rows = Embeddings(*make_rows(40, seed=9), "domain 1")
    asked = EVALUATE, (Broadcast(0, params).to_bytes(),)
    for _ in range(2):
        handler = ClientHandler(client, {"test": rows}, DecodedParts())
        handler.resume([asked], {})
        with pytest.raises(MessageError, match="told apart before"):
            handler.answer(EVALUATE, (Broadcast(4, params, absent=(1,)).to_bytes(),))
