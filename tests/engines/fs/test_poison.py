"""Well-formed poison of one of four clients: named by default, harmless when refused.

Tests of federation/screening.py and federation/wire/declared.py by processes.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("grpc", reason="distributed mode needs grpcio")

#: What client 3 does, and what the log then says of it. Where it boasts, it declares so
#: much when it joins that nothing is beyond it.
POISONS = {
    "means": ({"statistics 0": "far_means"}, "field 'counts': "),
    "shapes": ({"statistics 0": "wide_shapes"}, "no embeddings have such a scatter"),
    "boasted means": (
        {"join": "boast", "statistics 0": "far_means"},
        "that it declared is",
    ),
    "boasted shapes": (
        {"join": "boast", "statistics 0": "wide_shapes"},
        "that it declared is",
    ),
    "weight": (
        {"prepare 0": "heavy", "train 1": "far_weights"},
        "its aggregation weight is 1.1e+12",
    ),
    "updates": (
        {f"train {n}": "far_weights" for n in (1, 2, 3)},
        "the length of its update is",
    ),
    "overflow": ({"train 1": "huge_weights"}, "numbers must be at most"),
    "scores": ({"evaluate 3": "false_scores"}, "field 'test_total': "),
}


@pytest.fixture
def run(fleet):
    """A run of four clients with a quorum of three, in which client 3 may lie."""

    def start(*settings, actions=()):
        one = fleet("ggeur.quorum", 3, *settings)
        server = one.server()
        clients = {k: one.client(k) for k in (1, 2, 4)}
        liar = one.client(3, actions=dict(actions))
        status = server.wait()
        for worker in (*clients.values(), liar):
            worker.wait()
        return server, status

    return start


@pytest.mark.slow
def test_refused_poison_leaves_the_score_as_it_is_without_the_client(run):
    without = {}
    for name, (actions, said) in POISONS.items():
        occasion = next(when for when in actions if when != "join")
        if occasion not in without:
            lost, status = run(actions={occasion: "die"})
            assert status == 0
            without[occasion] = lost.results["rounds"][-1]
        server, status = run("ggeur.screen", "refuse", actions=actions)
        assert status == 0, name
        found, wanted = server.results["rounds"][-1], without[occasion]
        assert abs(found["avg"] - wanted["avg"]) <= 0.03, (name, found, wanted)
        assert found["accuracy"].keys() == wanted["accuracy"].keys()
        lines = [x for x in server.output.splitlines() if "client 3" in x and said in x]
        assert lines, name


@pytest.mark.parametrize("name", ["boasted means", "weight", "updates", "overflow"])
def test_poison_is_named_by_default(run, name):
    actions, said = POISONS[name]
    server, _ = run(actions=actions)
    lines = [x for x in server.output.splitlines() if "client 3" in x and said in x]
    assert lines
    if name != "overflow":  # which no sum can take, so it is refused at once
        assert "to leave such answers out, set ggeur.screen: refuse" in lines[0]
    assert not [x for x in server.output.splitlines() if "to leave such" in x
                and "client 3" not in x]  # fmt: skip
