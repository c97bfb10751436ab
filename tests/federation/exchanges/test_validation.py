"""What the server takes of whom, beyond what decoding and the roles' tests show."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.methods import FedAvg, TensorSpec
from federatedscope_ggeur.models import ModelSettings, build_model

DOMAINS = {1: "art", 2: "photo"}
MODEL = build_model(4, 3, ModelSettings())


class Sends(FedAvg):
    """A method with tensors of every kind of shape, and none."""

    def init_upload_shapes(self, model):
        rows = TensorSpec((None, model.in_features))
        return {"rows": rows, "one": TensorSpec(())}

    def upload_shapes(self, model):
        return {"c": TensorSpec((3,)), "n": TensorSpec((3,), torch.int64)}

    def init_upload_problem(self, init_upload, model):
        return "'one' must be below 9" if init_upload["one"] >= 9 else ""

    def upload_problem(self, upload, model):
        return "'n' must not be negative" if (upload["n"] < 0).any() else ""


def init_upload(**changes):
    return {"rows": torch.zeros(7, 4), "one": torch.tensor(1.0), **changes}


def merged(*clients):
    return SimpleNamespace(rows=dict.fromkeys(clients, 5))


def validate(kind, answer, number=0, asked=(), **known):
    """Validate an answer where the server knows so much."""
    server = SimpleNamespace(
        client_domains=DOMAINS,
        task=SimpleNamespace(method=Sends()),
        model=MODEL,
        **{"merged": merged(), "aggregation_weights": {}, **known},
    )
    request = Request(kind, number, dict.fromkeys(asked, ()))
    return kind.validate(SimpleNamespace(server=server), request, answer)


def refusal(*arguments, **known):
    with pytest.raises(MessageError) as caught:
        validate(*arguments, **known)
    return caught.value.sender, caught.value.field


class TestPrepareReplies:
    @pytest.mark.parametrize("rows", [0, 1, 7])
    def test_of_any_length_where_the_method_says_so(self, rows):
        reply = PrepareReply(1, 5.0, init_upload(rows=torch.zeros(rows, 4)))
        assert validate(PREPARE, reply) is None

    @pytest.mark.parametrize(
        ("tensors", "field"),
        [
            ({}, "init_upload"),
            ({"rows": torch.zeros(7, 4)}, "init_upload"),
            (init_upload(more=torch.zeros(1)), "init_upload"),
            (init_upload(rows=torch.zeros(7, 5)), "init_upload.rows"),
            (init_upload(rows=torch.zeros(28)), "init_upload.rows"),
            (init_upload(one=torch.zeros(1)), "init_upload.one"),
            (init_upload(rows=torch.zeros(7, 4).double()), "init_upload.rows"),
            (init_upload(one=torch.tensor(1)), "init_upload.one"),
            (init_upload(one=torch.tensor(9.0)), "init_upload"),
        ],
    )
    def test_with_other_tensors_are_refused(self, tensors, field):
        found = refusal(PREPARE, PrepareReply(1, 5.0, tensors))
        assert found == ("client 1", field)

    def test_may_come_again(self):
        reply = PrepareReply(1, 5.0, init_upload())
        assert validate(PREPARE, reply, aggregation_weights={1: 5.0}) is None

    @pytest.mark.parametrize("weight", [0.0, 4.0, 5.5])
    def test_again_with_another_weight_are_refused(self, weight):
        after = PrepareReply(1, weight, init_upload())
        found = refusal(PREPARE, after, aggregation_weights={1: 5.0})
        assert found == ("client 1", "aggregation_weight")

    def test_of_a_stranger_are_refused(self):
        found = refusal(PREPARE, PrepareReply(3, 5.0, init_upload()))
        assert found == ("client 3", "client")


def test_statistics_come_once_and_of_the_domain_it_joined_with():
    def upload(client, domain):
        return StatisticsUpload(client, domain, Statistics.empty(3, 4))

    assert validate(STATISTICS, upload(1, "art"), merged=merged(2)) is None
    for client, domain, earlier, field in (
        (1, "art", {1}, "client"),
        (3, "art", set(), "client"),
        (1, "photo", set(), "domain"),
    ):
        sent = upload(client, domain)
        found = refusal(STATISTICS, sent, merged=merged(*earlier))
        assert found == (f"client {client}", field)


def test_updates_come_of_those_drawn_in_their_round():
    def update(client, number=4, **upload):
        fine = {"c": torch.ones(3), "n": torch.ones(3, dtype=torch.int64)}
        upload = {**fine, **upload}
        return ClientUpdate(client, number, torch.zeros(15), 1, upload)

    assert validate(TRAIN, update(1), 4, [1]) is None
    for bad, field in (
        (update(2), "round"),
        (update(3), "round"),
        (update(1, number=3), "round"),
        (update(1, number=5), "round"),
        (update(1, d=torch.ones(3)), "upload"),
        (update(1, c=torch.ones(4)), "upload.c"),
        (update(1, c=torch.ones(3, 1)), "upload.c"),
        (update(1, c=torch.ones(3).double()), "upload.c"),
        (update(1, n=torch.ones(3)), "upload.n"),
        (update(1, n=torch.tensor([1, -1, 1])), "upload"),
    ):
        found = refusal(TRAIN, bad, 4, [1])
        assert found == (f"client {bad.client}", field)


def test_scores_come_of_clients_in_their_round():
    scores = {"test": Score(1, 2, 0.5)}
    assert validate(EVALUATE, ScoreReport(2, 4, scores), 4) is None
    for client, number, field in ((3, 4, "client"), (2, 3, "round_number")):
        report = ScoreReport(client, number, scores)
        found = refusal(EVALUATE, report, 4)
        assert found == (f"client {client}", field)
