"""What the server takes of whom, beyond what decoding and the roles' tests show."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.messages import (
    ClientUpdate,
    PrepareReply,
    ScoreReport,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.messages.validation import Admission
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.methods import FedAvg, TensorSpec
from federatedscope_ggeur.models import ModelSettings, build_model

DOMAINS = {1: "art", 2: "photo"}


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


@pytest.fixture
def admission():
    return Admission(DOMAINS, Sends(), build_model(4, 3, ModelSettings()))


def init_upload(**changes):
    return {"rows": torch.zeros(7, 4), "one": torch.tensor(1.0), **changes}


def refusal(check, *arguments):
    with pytest.raises(MessageError) as caught:
        check(*arguments)
    return caught.value.sender, caught.value.field


class TestReadiness:
    @pytest.mark.parametrize("rows", [0, 1, 7])
    def test_any_length_where_the_method_says_so(self, admission, rows):
        ready = PrepareReply(1, 5.0, init_upload(rows=torch.zeros(rows, 4)))
        assert admission.ready(ready, None, again=False) is None

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
    def test_with_other_tensors_is_refused(self, admission, tensors, field):
        found = refusal(admission.ready, PrepareReply(1, 5.0, tensors), None, False)
        assert found == ("client 1", field)

    def test_a_second_time_only_where_that_may_be(self, admission):
        ready = PrepareReply(1, 5.0, init_upload())
        assert admission.ready(ready, ready, again=True) is None
        found = refusal(admission.ready, ready, ready, False)
        assert found == ("client 1", "client")

    @pytest.mark.parametrize("aggregation_weight", [0.0, 4.0, 5.5])
    def test_again_with_another_weight_is_refused(self, admission, weight):
        before, after = (PrepareReply(1, w, init_upload()) for w in (5.0, weight))
        found = refusal(admission.ready, after, before, True)
        assert found == ("client 1", "aggregation_weight")

    def test_of_a_stranger_is_refused(self, admission):
        found = refusal(
            admission.ready, PrepareReply(3, 5.0, init_upload()), None, True
        )
        assert found == ("client 3", "client")


def test_statistics_come_once_and_of_the_domain_it_joined_with(admission):
    def upload(client, domain):
        return StatisticsUpload(client, domain, ClassStatistics.empty(3, 4))

    assert admission.statistics(upload(1, "art"), {2}) is None
    for client, domain, earlier, field in (
        (1, "art", {1}, "client"),
        (3, "art", set(), "client"),
        (1, "photo", set(), "domain"),
    ):
        found = refusal(admission.statistics, upload(client, domain), earlier)
        assert found == (f"client {client}", field)


def test_updates_come_of_those_drawn_in_their_round(admission):
    def update(client, number=4, **upload):
        fine = {"c": torch.ones(3), "n": torch.ones(3, dtype=torch.int64)}
        upload = {**fine, **upload}
        return ClientUpdate(client, number, torch.zeros(15), 1, upload)

    assert admission.update(update(1), 4, [1]) is None
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
        found = refusal(admission.update, bad, 4, [1])
        assert found == (f"client {bad.client}", field)


def test_scores_come_of_clients_in_their_round(admission):
    assert admission.scores(ScoreReport(2, 4, 1, 2, 0.5), 4) is None
    for client, number, field in ((3, 4, "client"), (2, 3, "round_number")):
        found = refusal(admission.scores, ScoreReport(client, number, 1, 2, 0.5), 4)
        assert found == (f"client {client}", field)


def test_messages_are_put_in_client_order(admission):
    reports = [ScoreReport(k, 4, 1, 2, 0.5) for k in (2, 1)]
    assert [r.client for r in admission.in_client_order(iter(reports))] == [1, 2]
    assert admission.in_client_order([]) == []
