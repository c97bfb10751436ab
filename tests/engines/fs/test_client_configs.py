"""FederatedScope's (FS's) --client_cfg for some clients only."""

from __future__ import annotations

import pytest
from processes import numbers
from standalone import outcome

from federatedscope_ggeur.errors import ConfigError

FASTER = "{train: {optimizer: {lr: 0.5}}}"


def rates(run) -> list[float]:
    return [
        client.trainer.client.settings.training.optimizer.lr
        for _, client in sorted(run.runner.client.items())
    ]


def test_those_that_are_named_have_their_own(fs):
    there = fs.set_up(clients=f"client_2: {FASTER}")
    assert rates(there) == [0.01, 0.5, 0.01]
    every = "\n".join(
        f"client_{k}: {{train: {{optimizer: {{lr: {rate}}}}}}}"
        for k, rate in ((1, 0.01), (2, 0.5), (3, 0.01))
    )
    assert outcome(there.go().results) == outcome(fs.run(clients=every).results)


def test_an_empty_file_changes_nothing(fs):
    assert outcome(fs.run(clients="{}").results) == outcome(fs.run().results)


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
def test_in_distributed_mode_a_process_takes_its_own_section(fleet, embedded, tmp_path):
    """The server, which has no settings of its own there, takes the same file."""
    own = tmp_path / "own.yaml"
    own.write_text(f"client_2: {FASTER}")

    def go(one, settings):
        server = one.server()
        clients = [one.client(k, *settings.get(k, ())) for k in (1, 2, 3, 4)]
        assert [w.wait() for w in (server, *clients)] == [0] * 5, str(one)
        return numbers(server.results)

    there = go(fleet(client_config=own), {})
    assert there == go(fleet(), {2: ("train.optimizer.lr", 0.5)})
    plain, _ = embedded()
    assert there != numbers(plain)
