"""FederatedScope's (FS's) --client_cfg for some clients only, or for all of them."""

from __future__ import annotations

import pytest
from processes import numbers
from standalone import outcome

from federatedscope_ggeur.errors import ConfigError, MessageError

FASTER = "{train: {optimizer: {lr: 0.5}}}"


def rates(run) -> list[float]:
    return [
        client.trainer.client.settings.training.optimizer.lr
        for _, client in sorted(run.runner.client.items())
    ]


@pytest.mark.slow
def test_those_that_are_named_have_their_own(fs):
    there = fs.set_up(clients=f"client_2: {FASTER}")
    assert rates(there) == [0.01, 0.5, 0.01]
    every = "\n".join(
        f"client_{k}: {{train: {{optimizer: {{lr: {rate}}}}}}}"
        for k, rate in ((1, 0.01), (2, 0.5), (3, 0.01))
    )
    faster = outcome(there.go().results)
    plain = outcome(fs.run(clients="{}").results)
    assert faster == outcome(fs.run(clients=every).results)
    assert faster != plain == outcome(fs.run().results)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"client_9: {FASTER}", "client_9: there are only client_1 to client_3"),
        (f"klient_1: {FASTER}", "klient_1: there are only client_1 to client_3"),
        ("client_1:", "client_1: must hold settings, got"),
        (
            "client_1: {train: {optimiser: {lr: 1}}}",
            "client_1.train.optimiser.lr: there is no such key",
        ),
        (
            "client_2: {train: {local_update_steps: many}}",
            "client_2.train.local_update_steps: expected int, got str 'many'",
        ),
        (
            "client_2: {train: {optimizer: {lr: -1.0}}}",
            "client_2.train.optimizer.lr: must lie in 0",
        ),
        ("client_3: {ggeur: {weight: heavy}}", "client_3.ggeur.weight: must be one of"),
    ],
)
def test_what_cannot_be_is_named(fs, text, line):
    with pytest.raises(ConfigError) as error:
        fs.set_up(clients=text)
    first, *lines = str(error.value).splitlines()
    assert first == "wrong settings in --client_cfg:"
    (only,) = lines
    assert only.startswith(f"  {line}")


@pytest.mark.slow
def test_what_all_must_have_alike_is_compared(fs):
    there = fs.set_up(clients="client_3: {seed: 9}")
    with pytest.raises(MessageError, match=r"client 3.*seed"):
        there.go()


@pytest.mark.slow
def test_in_distributed_mode_a_process_takes_its_own_section(fleet, tmp_path):
    """The server, which has no settings of its own there, takes the same file."""
    own = tmp_path / "own.yaml"
    own.write_text(f"client_2: {FASTER}")
    found = []
    for one, more in (
        (fleet(client_config=own), ()),
        (fleet(), ("train.optimizer.lr", 0.5)),
    ):
        server = one.server()
        clients = [one.client(k, *(more if k == 2 else ())) for k in (1, 2, 3, 4)]
        assert [w.wait() for w in (server, *clients)] == [0] * 5
        found.append(numbers(server.results))
    assert found[0] == found[1]
