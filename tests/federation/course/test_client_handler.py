"""What a client answers, and what it refuses to.

Tests of the table of requests, too: what each kind says of itself, what is taken.
"""

import pytest
from carrier import carrier

from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import CalibrationSettings, TrainingSettings
from federatedscope_ggeur.federation.exchanges import ClientSide, RequestKind
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    INIT_BROADCAST,
    PREPARE,
)
from federatedscope_ggeur.federation.exchanges.base import all_kinds, answered_kinds
from federatedscope_ggeur.federation.exchanges.calibration import CALIBRATE
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    LEAVE_ONE_OUT,
    LOG_LOSSES,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EVALUATE,
    VALIDATION_LOSSES,
)
from federatedscope_ggeur.federation.exchanges.space import TOTALS
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast


def by_name(kind):
    return getattr(kind, "name", None)


PLAIN, LDA = ["ggeur.steps", []], ["ggeur.closed_form", "lda"]
FIXED = [*PLAIN, *LDA, "ggeur.lda.shrinkage", 0.3]
UNSCALED = ["ggeur.temperature", "none"]
START = ["ggeur.init", "closed_form"]
STANDARD, LOCAL = ["ggeur.space", "standard"], ["ggeur.base_method", "local"]

ALWAYS = {PREPARE, INIT_BROADCAST, TRAIN, EVALUATE}
SCALED = ALWAYS | {VALIDATION_LOSSES}
ALONE = {EVALUATE, STATISTICS}  # without rounds there is no training
LEFT_OUT = {LEAVE_ONE_OUT, LOG_LOSSES}
#: Settings, and all that a client answers of them.
ANSWERED = [
    (PLAIN, SCALED),
    ([], SCALED | {STATISTICS}),
    ([*PLAIN, *LDA], ALONE | LEFT_OUT),
    (FIXED, ALONE | {LOG_LOSSES}),
    ([*FIXED, *UNSCALED], ALONE),
    ([*FIXED, *UNSCALED, *START], ALWAYS | {STATISTICS}),
    ([*PLAIN, "ggeur.calibrate", "ccvr"], ALWAYS | {CALIBRATE}),
    ([*STANDARD, *PLAIN], SCALED | {TOTALS}),
    (STANDARD, SCALED | {STATISTICS, TOTALS}),
    # Without training there is no space, and by itself each client has its own.
    ([*STANDARD, *LDA], ALONE | LEFT_OUT),
    ([*STANDARD, *LDA, *START], SCALED | LEFT_OUT | {STATISTICS, TOTALS}),
    ([*STANDARD, *PLAIN, *LOCAL], ALWAYS),
    ([*STANDARD, *LOCAL], ALWAYS | {STATISTICS, TOTALS}),
]


class TestAClientHandler:
    def test_refuses_requests_that_it_does_not_know(self):
        handler = carrier().handlers[1]
        other = RequestKind("open", "open", "train", (), lambda handler: None)
        with pytest.raises(MessageError, match=r"'kind': .* to answer 'open'"):
            handler.answer(other, ())

    @pytest.mark.parametrize(
        ("kind", "parts"),
        [(STATISTICS, 1), (PREPARE, 1), (INIT_BROADCAST, 0), (TRAIN, 2), (EVALUATE, 0)],
        ids=by_name,
    )
    def test_refuses_another_number_of_parts(self, kind, parts):
        handler = carrier().handlers[1]
        problem = (
            f"'parts': a request '{kind.name}' with a wrong number of parts: {parts}"
        )
        with pytest.raises(MessageError, match=problem):
            handler.answer(kind, (b"x",) * parts)

    @pytest.mark.parametrize(
        ("settings", "kinds"), ANSWERED, ids=[str(row[0]) for row in ANSWERED]
    )
    def test_answers_only_what_its_own_settings_ask_for(self, config, settings, kinds):
        demands = run_settings(config(*settings), 12, 16, 3).demands
        assert set(answered_kinds(demands)) == kinds

    @pytest.mark.parametrize("kind", [STATISTICS, CALIBRATE], ids=by_name)
    def test_refuses_what_they_do_not(self, kind):
        handler = carrier(steps=()).handlers[1]
        parts = (b"x",) * len(kind.parts)
        problem = f"do not allow it to answer '{kind.name}'"
        with pytest.raises(MessageError, match=problem):
            handler.answer(kind, parts)

    def test_scores_one_head_where_nothing_is_trained(self):
        carried = carrier(steps=(), rounds=0)
        alone, server = carried.handlers[1], carried.server
        asked = Broadcast(0, server.params).to_bytes()
        assert alone.answer(EVALUATE, (asked,)) == alone.answer(EVALUATE, (asked,))
        for other in (Broadcast(0, server.params + 1), Broadcast(1, server.params)):
            with pytest.raises(MessageError, match="second head to score"):
                alone.answer(EVALUATE, (other.to_bytes(),))

    def test_keeps_of_its_sides_only_those_that_hold_something(self):
        class Plain(ClientSide):
            pass

        class Holder(ClientSide):
            def __init__(self, client, rows):
                super().__init__(client, rows)
                self.asked = 0

        handler = carrier().handlers[1]
        assert handler.side(Plain) is not handler.side(Plain)
        assert handler.side(Holder) is handler.side(Holder)

    def test_calibrates_at_one_set_of_weights(self):
        carried = carrier(calibration=CalibrationSettings(10, 1, TrainingSettings()))
        handler, server = carried.handlers[1], carried.server
        asked = Broadcast(4, server.params).to_bytes()
        first = handler.answer(CALIBRATE, (asked,))
        assert handler.answer(CALIBRATE, (asked,)) == first
        other = Broadcast(4, server.params + 1).to_bytes()
        with pytest.raises(MessageError, match="second calibration with other weights"):
            handler.answer(CALIBRATE, (other,))


@pytest.mark.parametrize("kind", all_kinds(), ids=by_name)
def test_a_kind_that_is_answered_says_how(kind):
    assert bool(kind.answer_message) == (kind.answer is not None)


def test_names_and_messages_are_given_once():
    for names in ([k.name for k in all_kinds()], [k.message for k in all_kinds()]):
        assert len(set(names)) == len(all_kinds())
    answers = [kind.answer_message for kind in all_kinds() if kind.answer_message]
    assert len(set(answers)) == len(answers)
