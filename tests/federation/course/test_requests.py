"""The table of requests: what each kind says of itself, and what answers are taken."""

import pytest
from by_bytes import Federation, make_client_data

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import CalibrationSettings, TrainingSettings
from federatedscope_ggeur.federation.course.requests import (
    BY_ANSWER,
    BY_MESSAGE,
    KINDS,
    PREPARE,
    STATISTICS,
    TRAIN,
    Request,
    decode_answer,
)
from federatedscope_ggeur.models import ModelSettings


def by_name(kind):
    return getattr(kind, "name", None)


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_every_kind_is_found_by_its_messages(kind):
    assert BY_MESSAGE[kind.message] is kind
    assert bool(kind.answer_message) == (kind.answer is not None)
    if kind.answer_message:
        assert BY_ANSWER[kind.answer_message] is kind


def test_names_and_messages_are_given_once():
    for names in ([k.name for k in KINDS], [k.message for k in KINDS]):
        assert len(set(names)) == len(KINDS)
    answers = [kind.answer_message for kind in KINDS if kind.answer_message]
    assert len(set(answers)) == len(answers) == len(BY_ANSWER)


@pytest.fixture
def federation():
    calibration = CalibrationSettings(10, 1, TrainingSettings())
    hidden = ModelSettings(hidden=3)
    data = make_client_data()
    return Federation(data, steps=(1,), model=hidden, calibration=calibration).round0()


def asked(kind, number, client):
    return Request(kind, number, {client: ()})


@pytest.mark.parametrize("parts", [(), (b"", b"")], ids=["none", "two"])
@pytest.mark.parametrize("kind", BY_ANSWER.values(), ids=by_name)
def test_an_answer_is_one_part(federation, kind, parts):
    problem = f"client 2 .*'parts': expected one part, got {len(parts)}"
    with pytest.raises(MessageError, match=problem):
        decode_answer(federation.server, asked(kind, 1, 2), 2, parts)


@pytest.mark.parametrize("kind", BY_ANSWER.values(), ids=by_name)
def test_an_answer_of_another_kind_is_refused(federation, kind):
    update = federation.train(1)[0].to_bytes()
    other = federation.clients[1].prepare(None, None).to_bytes()
    wrong = other if kind is TRAIN else update
    with pytest.raises(MessageError, match=r"client 1 .*instead of"):
        decode_answer(federation.server, asked(kind, 1, 1), 1, (wrong,))


def test_an_answer_in_another_clients_name_is_refused(federation):
    update = federation.train(1)[0].to_bytes()
    with pytest.raises(MessageError, match=r"client 2 .*from client 1"):
        decode_answer(federation.server, asked(TRAIN, 1, 2), 2, (update,))


def test_what_the_server_knows_counts(federation):
    """A second upload; a reply of another weight than before."""
    client = federation.clients[1]
    upload = client.statistics().to_bytes()
    with pytest.raises(MessageError, match=r"client 1 .*sent twice"):
        decode_answer(federation.server, asked(STATISTICS, 0, 1), 1, (upload,))
    other = client.prepare(None, None).to_bytes()
    with pytest.raises(MessageError, match="'aggregation_weight'"):
        decode_answer(federation.server, asked(PREPARE, 0, 1), 1, (other,))
