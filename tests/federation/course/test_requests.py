"""The table of requests: what each kind says of itself, and what answers are taken."""

import pytest
from by_bytes import Federation, make_client_data

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import CalibrationSettings, TrainingSettings
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    PREPARE,
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.exchanges.calibration.exchange import CALIBRATE
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    STATISTICS,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.models import ModelSettings

#: The kinds that the federation below is asked, and answers.
ANSWERED = [STATISTICS, PREPARE, TRAIN, EVALUATE, CALIBRATE]


def by_name(kind):
    return getattr(kind, "name", None)


@pytest.mark.parametrize("kind", all_kinds(), ids=by_name)
def test_a_kind_that_is_answered_says_how(kind):
    assert bool(kind.answer_message) == (kind.answer is not None)


def test_names_and_messages_are_given_once():
    for names in ([k.name for k in all_kinds()], [k.message for k in all_kinds()]):
        assert len(set(names)) == len(all_kinds())
    answers = [kind.answer_message for kind in all_kinds() if kind.answer_message]
    assert len(set(answers)) == len(answers)


@pytest.fixture
def federation():
    calibration = CalibrationSettings(10, 1, TrainingSettings())
    hidden = ModelSettings(hidden=3)
    data = make_client_data()
    return Federation(data, steps=(1,), model=hidden, calibration=calibration).round0()


def asked(kind, number, client):
    return Request(kind, number, {client: ()})


@pytest.mark.parametrize("parts", [(), (b"", b"")], ids=["none", "two"])
@pytest.mark.parametrize("kind", ANSWERED, ids=by_name)
def test_an_answer_is_one_part(federation, kind, parts):
    problem = f"client 2 .*'parts': expected one part, got {len(parts)}"
    with pytest.raises(MessageError, match=problem):
        federation.coordinator.asking.decode(asked(kind, 1, 2), 2, parts)


@pytest.mark.parametrize("kind", ANSWERED, ids=by_name)
def test_an_answer_of_another_kind_is_refused(federation, kind):
    update = federation.train(1)[0].to_bytes()
    other = federation.side(1, AugmentationClient).prepare(None, None).to_bytes()
    wrong = other if kind is TRAIN else update
    with pytest.raises(MessageError, match=r"client 1 .*instead of"):
        federation.coordinator.asking.decode(asked(kind, 1, 1), 1, (wrong,))
