"""One merge feeds all that is made of statistics."""

from pathlib import Path

import pytest
from carrier import carrier, lost
from loaded_scripts import loaded

from federatedscope_ggeur.federation.exchanges import ORDER
from federatedscope_ggeur.federation.exchanges.space import SpaceBroadcast
from federatedscope_ggeur.federation.merge import Merge
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.models import CLOSED_FORMS, ModelSettings

OUT = 2
#: With training there are a space, shapes and prototypes.
RUNS = {
    "lda, trained": {
        "kind": "lda",
        "steps": (1, 2),
        "space": "standard",
        "min_samples": 7,
    },
    "lda alone": {"kind": "lda", "steps": (), "rounds": 0},
}


def made_of_statistics(kind, faults=(), **options):
    """All that the server makes of statistics in round 0."""
    carried = carrier(
        quorum=3,
        model=ModelSettings(closed_form=kind),
        closed_form=CLOSED_FORMS[kind](),
        statistics=StatisticsForm("class", exact=True),
        facts={
            "leaves_out": True,
            "is_cooled": True,
            "chosen": {"base_method": "fedavg"},
        },
        **options,
    )
    carried.faults = dict(faults)
    record, server = carried.round0(), carried.server
    made = {
        "rows": server.merged.rows,
        "pairs": record.uploaded_pairs,
        "head": server.solved_params.tolist(),
        "choice, shrinkage": record.closed_form.details,
        "temperature": server.temperature,
    }
    if server.trains:
        augmentation = carried.federation.augmentation
        made["space"] = SpaceBroadcast(server.space).to_bytes()
        made["shapes"] = augmentation.geometry
        made["prototypes"] = augmentation.prototypes(1).to_bytes()
    return made


@pytest.mark.parametrize("options", RUNS.values(), ids=list(RUNS))
def test_whom_the_merge_leaves_out_is_in_nothing(options, monkeypatch):
    everybody = made_of_statistics(**options)
    without = made_of_statistics(**options, faults={("statistics", 0, OUT): lost})
    add = Merge.add

    def add_the_others(self, upload):
        if upload.client != OUT:
            add(self, upload)

    monkeypatch.setattr(Merge, "add", add_the_others)
    broken = made_of_statistics(**options)
    assert broken == without
    assert not [name for name in broken if broken[name] == everybody[name]]


# Which rooms statistics and a round enter, as `benchmarks/trace.py` finds them.


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trace.py"


@pytest.fixture(scope="module")
def trace():
    return loaded(SCRIPT)


def test_statistics_enter_each_exchange_once(trace, tmp_path):
    found = trace.trace_statistics(trace.quickstart(str(tmp_path)))
    entered = found.exchanges()
    assert entered == ["statistics", "space", "augmentation"]
    assert set(found.rooms()) <= {*trace.SHARED_ROOMS, *ORDER}
    assert "exchanges/statistics/upload.py" in found.files


def test_a_later_round_enters_training_and_evaluation_alone(trace, tmp_path):
    found = trace.trace_round(trace.quickstart(str(tmp_path)))
    assert set(found.exchanges()) == {"training", "evaluation"}
