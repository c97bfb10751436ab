"""Secure sums as requests: who is asked, who is missed."""

from dataclasses import replace

import pytest
from by_bytes import CLASSES, DIM, Federation, make_client_data
from carrier import SIZES, Carrier, garbage, late, lost, twice

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.exchange import (
    SUM_KEYS,
    SUM_KINDS,
    SumsExchange,
    stage_of,
)
from federatedscope_ggeur.extras.secure_sums.messages import MaskedVector
from federatedscope_ggeur.extras.secure_sums.settings import (
    STAGES,
    SumSettings,
)
from federatedscope_ggeur.federation.exchanges import Absence
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.wire.schema import Declared

SETTINGS = SumSettings(
    *(CLASSES, DIM, 3),
    radius=20.0,
    max_rows=2**14,
    fraction_bits=36,
    class_names=tuple(map(str, range(CLASSES))),
)
ALL = [1, 2, 3, 4]


@pytest.fixture
def carried():
    """Four clients whose statistics are summed, two of them asked clients."""
    return summing_carrier()


def summing_carrier(window=2, quorum=None):
    federation = Federation(
        make_client_data(SIZES),
        steps=(1,),
        prototypes="others",
        own=[SETTINGS],
        facts={"only_totals": True, "chosen": {"secure_sums": "statistics"}},
    )
    return Carrier(federation, quorum, window)


def sums_of(one):
    return one.coordinator.find(SumsExchange)


def gathered(one):
    one.carry(sums_of(one).begin())
    return sums_of(one).record()["statistics_bytes_up"]


def test_keys_then_one_stage_after_the_other_of_everyone(carried):
    sizes = gathered(carried)
    names = ["sum_counts", "sum_means", "sum_pooled"]
    stages = [(name, some) for name in names for some in ([1, 2], [3, 4])]
    assert carried.asked() == [("sum_keys", ALL), *stages]
    kinds = ["sum_keys", *names]
    assert sum(sizes.values()) == carried.bytes_up(*kinds)
    assert int(carried.server.merged.statistics.counts.sum()) == sum(SIZES)


def test_every_stage_has_its_kind():
    assert [stage_of(kind) for kind in SUM_KINDS.values()] == list(SUM_KINDS)
    own = SumsExchange.KINDS
    patient = {kind for kind in all_kinds() if kind.patient and kind in own}
    assert patient == {SUM_KEYS, *SUM_KINDS.values()}


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *(("sum_keys", fault) for fault in (lost, late, garbage, twice)),
        *((f"sum_{stage}", lost) for stage in STAGES),
    ],
)
def test_whoever_is_missing_ends_it_by_name_whatever_the_quorum(fault, kind):
    one = summing_carrier(quorum=2)
    one.faults[kind, 0, 3] = fault
    with pytest.raises(GGEURError, match=f"round 0, {kind}: .* client 3: "):
        gathered(one)
    assert sums_of(one).summed is None


@pytest.mark.parametrize("kind", ["sum_keys", "sum_means"])
def test_who_was_not_waited_for_is_neither_blamed_nor_asked_again(kind):
    one = summing_carrier(window=4)
    requests = sums_of(one).begin()
    request = next(requests)
    while request.kind.name != kind:
        replies = {
            k: one.handlers[k].answer(request.kind, parts)
            for k, parts in request.parts.items()
        }
        request = requests.send(replies)
    one.membership.lose(3, "other rows")
    with pytest.raises(GGEURError, match=r"1 of 4 are missing. client 3: other rows\."):
        requests.send({3: Absence("other rows")})
    assert list(one.membership.absent) == [3]


def test_who_is_not_there_at_the_beginning_is_not_in_the_roster():
    one = summing_carrier(quorum=3)
    one.membership.leave(2, "gone")
    gathered(one)
    assert list(one.server.merged.rows) == [1, 3, 4]
    assert int(one.server.merged.statistics.counts.sum()) == sum(SIZES) - SIZES[1]


def test_more_rows_than_clients_declared_are_noticed(carried):
    carried.membership.declared.update({k: Declared(train=5) for k in ALL})
    with pytest.raises(GGEURError, match="declared 20 together"):
        gathered(carried)


def test_a_client_answers_only_what_its_settings_ask_for(carried):
    with pytest.raises(MessageError, match="secure_sums"):
        carried.handlers[1].answer(STATISTICS, ())
    plain = Carrier(Federation(make_client_data(SIZES), steps=(1,)))
    with pytest.raises(MessageError, match="secure_sums"):
        plain.handlers[1].answer(SUM_KINDS["means"], (b"",))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"stage": "counts"}, "stage"),
        ({"session": bytes(16)}, "session"),
        ({"masked": None}, "masked"),
    ],
)
def test_an_answer_of_another_stage_session_or_length_is_refused(
    carried, change, field
):
    def spoil(reply, carrier):
        schema = carrier.server.schema
        vector = MaskedVector.from_bytes(reply[0], schema, "client 3")
        short = {"masked": vector.masked[1:]} if "masked" in change else change
        return (replace(vector, **short).to_bytes(),)

    carried.faults["sum_means", 0, 3] = spoil
    with pytest.raises(GGEURError, match=f"client 3: .*field '{field}'"):
        gathered(carried)
