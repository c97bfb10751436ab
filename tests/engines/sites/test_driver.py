"""The driver: one request after the other, each answer once, deadlines."""

from dataclasses import replace

import pytest

from federatedscope_ggeur.engines.sites.driver import Driver, Grace
from federatedscope_ggeur.federation.exchanges import Absence, Request
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    INIT_BROADCAST,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN

#: The server waits for all of them, also for one that lost its connection.
PATIENT = replace(TRAIN, name="total", patient=True, needs_all=True)


class Course:
    """Two requests; what came back of each, and what the course returned."""

    def __init__(self, *requests):
        self.requests, self.replies, self.result = requests, [], None

    def go(self):
        for request in self.requests:
            self.replies.append((yield request))
        return "over"

    def done(self, result):
        self.result = result


def request(kind, number=1, clients=(1, 2)):
    return Request(kind, number, dict.fromkeys(clients, (b"down",)))


def drive(*requests, seconds=5.0, grace=0.0):
    """A driver that has begun, what it has sent, and the course."""
    course, sent = Course(*requests), []
    deadlines = dict.fromkeys((TRAIN, EVALUATE, PATIENT), seconds)
    driver = Driver(lambda asked: sent.append(asked) or {}, deadlines, grace)
    driver.start(course.go(), course.done)
    return driver, sent, course


def test_the_next_request_goes_out_when_all_have_answered():
    first, second = request(TRAIN), request(EVALUATE)
    driver, sent, course = drive(first, second)
    assert sent == [first]
    assert driver.answer(2, TRAIN, 1, (b"b",))
    assert sent == [first]
    assert driver.answer(1, TRAIN, 1, (b"a",))
    assert sent == [first, second]
    assert course.replies == [{2: (b"b",), 1: (b"a",)}]
    assert course.result is None
    for number in (1, 2):
        assert driver.answer(number, EVALUATE, 1, (b"c",))
    assert course.result == "over"
    assert driver.seconds_left() is None


@pytest.mark.parametrize(
    ("number", "kind", "round_number"),
    [(1, EVALUATE, 1), (1, TRAIN, 0), (1, TRAIN, 2), (3, TRAIN, 1), (2, TRAIN, 1)],
    ids=["another kind", "earlier", "later", "not asked", "a second time"],
)
def test_any_other_answer_is_ignored(caplog, number, kind, round_number):
    caplog.set_level("INFO")
    driver, _, course = drive(request(TRAIN))
    assert driver.answer(2, TRAIN, 1, (b"first",))
    assert not driver.answer(number, kind, round_number, (b"second",))
    assert f"client {number}: an answer ({kind.name}, round " in caplog.text
    assert driver.answer(1, TRAIN, 1, (b"last",))
    assert course.replies == [{2: (b"first",), 1: (b"last",)}]


def test_what_wants_no_answer_is_sent_and_not_waited_for():
    told, asked = request(INIT_BROADCAST, 0), request(TRAIN)
    _, sent, course = drive(told, asked)
    assert sent == [told, asked]
    assert course.replies == [{}]


def test_the_deadline_ends_the_waiting_for_the_late(caplog):
    driver, _, course = drive(request(TRAIN), seconds=7)
    assert 6 < driver.seconds_left() <= 7
    assert driver.answer(2, TRAIN, 1, (b"a",))
    driver.give_up()
    reason = "no answer (train) within 7 s"
    assert f"client 1: {reason}" in caplog.text
    assert course.replies == [{2: (b"a",), 1: Absence(reason, connected=True)}]
    driver.give_up()  # nobody is waited for
    assert course.result == "over"


def test_of_a_sum_that_one_refuses_nobody_else_is_waited_for():
    driver, _, course = drive(request(PATIENT, 0, (1, 2, 3)))
    assert driver.answer(1, PATIENT, 0, (b"a",))
    driver.gone(2, "its rows are too long", may_return=False)
    assert course.replies == [{1: (b"a",), 2: Absence("its rows are too long")}]
    assert course.result == "over"


def test_a_sum_whose_deadline_is_over_ends_once():
    driver, _, course = drive(request(PATIENT, 0, (1, 2, 3)))
    driver.give_up()
    (replies,) = course.replies
    assert sorted(replies) == [1, 2, 3]
    assert {reply.reason for reply in replies.values()} == {
        "no answer (total) within 5 s"
    }
    assert course.result == "over"


#: A deadline, and time for those whose connection broke.
GRACE = {"seconds": 600.0, "grace": 60.0}


def broken(driver, number):
    driver.gone(number, "broken", is_broken=True)


def test_whose_connection_broke_has_time_to_come_back(clock):
    """No other request goes out meanwhile, whether or not the client has answered."""
    driver, sent, course = drive(request(TRAIN), request(EVALUATE), **GRACE)
    driver.answer(1, TRAIN, 1, (b"a",))
    broken(driver, 1)
    driver.answer(2, TRAIN, 1, (b"b",))
    assert len(sent) == 1
    assert driver.seconds_left() == 60
    clock[0] += 59
    driver.back(1)
    assert len(sent) == 2
    broken(driver, 2)
    driver.answer(1, EVALUATE, 1, (b"a",))
    assert len(course.replies) == 1
    driver.back(2)  # it is asked again by the course
    assert course.replies[1] == {1: (b"a",), 2: Absence("broken")}


def test_the_time_is_over_once(clock):
    driver, sent, course = drive(
        request(TRAIN), request(EVALUATE, clients=(1,)), **GRACE
    )
    driver.answer(1, TRAIN, 1, (b"a",))
    broken(driver, 2)
    clock[0] += 60
    assert driver.seconds_left() == 0
    driver.give_up()
    (replies,) = course.replies
    assert "did not come back" in replies[2].reason
    assert not replies[2].connected
    assert len(sent) == 2
    broken(driver, 2)  # a stranger to this request, and its time is used up
    driver.answer(1, EVALUATE, 1, (b"a",))
    assert course.result == "over"


@pytest.mark.parametrize("options", [{}, {"is_broken": True, "may_return": False}])
def test_who_left_by_itself_counts_at_once(clock, options):
    driver, _, course = drive(request(TRAIN), **GRACE)
    driver.answer(1, TRAIN, 1, (b"a",))
    driver.gone(2, "goodbye", **options)
    assert course.result == "over"


def test_a_client_that_flaps_costs_a_tenth_of_the_time(clock):
    grace, waited = Grace(60.0), 0.0
    for _ in range(200):  # it comes back just in time, and is lost a minute later
        left = grace.begin(1)
        clock[0] += left
        waited += left
        grace.end(1)
        clock[0] += 60.0
    assert waited == pytest.approx(60 + 199 * 6)
    assert grace.begin(2) == 60.0, "each client has time of its own"
    assert grace.over() == []
    clock[0] += 60.0
    assert grace.over() == [2]
    assert not Grace(0.0).begin(1)
