"""What the server takes of whom, beyond what decoding and the roles' tests show."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.messages.validation import (
    validate_prepare_reply,
    validate_scores,
    validate_statistics,
    validate_update,
)
from federatedscope_ggeur.geometry import ClassStatistics
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


def refusal(validate, *arguments):
    with pytest.raises(MessageError) as caught:
        validate(*arguments)
    return caught.value.sender, caught.value.field


class TestPrepareReplies:
    def validate(self, reply, before=None):
        return validate_prepare_reply(reply, DOMAINS, Sends(), MODEL, before)

    @pytest.mark.parametrize("rows", [0, 1, 7])
    def test_of_any_length_where_the_method_says_so(self, rows):
        reply = PrepareReply(1, 5.0, init_upload(rows=torch.zeros(rows, 4)))
        assert self.validate(reply) is None

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
        found = refusal(self.validate, PrepareReply(1, 5.0, tensors))
        assert found == ("client 1", field)

    def test_may_come_again(self):
        reply = PrepareReply(1, 5.0, init_upload())
        assert self.validate(reply, before=reply) is None

    @pytest.mark.parametrize("weight", [0.0, 4.0, 5.5])
    def test_again_with_another_weight_are_refused(self, weight):
        before, after = (PrepareReply(1, w, init_upload()) for w in (5.0, weight))
        found = refusal(self.validate, after, before)
        assert found == ("client 1", "aggregation_weight")

    def test_of_a_stranger_are_refused(self):
        found = refusal(self.validate, PrepareReply(3, 5.0, init_upload()))
        assert found == ("client 3", "client")


def test_statistics_come_once_and_of_the_domain_it_joined_with():
    def upload(client, domain):
        return StatisticsUpload(client, domain, ClassStatistics.empty(3, 4))

    assert validate_statistics(upload(1, "art"), DOMAINS, {2}) is None
    for client, domain, earlier, field in (
        (1, "art", {1}, "client"),
        (3, "art", set(), "client"),
        (1, "photo", set(), "domain"),
    ):
        sent = upload(client, domain)
        found = refusal(validate_statistics, sent, DOMAINS, earlier)
        assert found == (f"client {client}", field)


def test_updates_come_of_those_drawn_in_their_round():
    def update(client, number=4, **upload):
        fine = {"c": torch.ones(3), "n": torch.ones(3, dtype=torch.int64)}
        upload = {**fine, **upload}
        return ClientUpdate(client, number, torch.zeros(15), 1, upload)

    drawn = (4, [1], Sends(), MODEL)
    assert validate_update(update(1), *drawn) is None
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
        found = refusal(validate_update, bad, *drawn)
        assert found == (f"client {bad.client}", field)


def test_scores_come_of_clients_in_their_round():
    scores = {"test": Score(1, 2, 0.5)}
    assert validate_scores(ScoreReport(2, 4, scores), 4, DOMAINS) is None
    for client, number, field in ((3, 4, "client"), (2, 3, "round_number")):
        report = ScoreReport(client, number, scores)
        found = refusal(validate_scores, report, 4, DOMAINS)
        assert found == (f"client {client}", field)
