"""What clients have spent adds up by row, and nothing resets it.

Tests of federation/kept_file.py, too: of two processes of one client one sends.
"""

import json
import math
import threading

import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.extras.differential_privacy.exchange import ReleaseClient
from federatedscope_ggeur.extras.differential_privacy.ledger import (
    Ledger,
    ledger_path,
    read_ledger,
)
from federatedscope_ggeur.extras.differential_privacy.noise import (
    NoiseSettings,
    Releaser,
)
from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    ReleasePlan,
    mu_of,
)
from federatedscope_ggeur.extras.differential_privacy.uploads import ReleaseRequest
from federatedscope_ggeur.federation.kept_file import KeptFile

MU = mu_of(1.0, 1e-5)
ROWS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.zeros(6, dtype=torch.int64)


def releaser(folder, rows, total=1.0, preparation="l2", number=1):
    settings = NoiseSettings(
        ReleasePlan(1, 4, 1.0, 1e-5, False),
        by="client",
        preparation=preparation,
        class_names=("a",),
        ledger=str(folder),
        most_mu=mu_of(total, 1e-5),
    )
    return Releaser(number, rows, LABELS[: len(rows)], settings)


def test_rows_are_released_once_by_default(tmp_path):
    releaser(tmp_path, ROWS[:3]).charge(b"one", "moments")
    releaser(tmp_path, ROWS[3:]).charge(b"two", "moments")  # other rows
    for overlapping in (ROWS[2:4], ROWS, ROWS[:1]):
        with pytest.raises(GGEURError, match="nothing is sent"):
            releaser(tmp_path, overlapping).charge(b"three", "moments")
    held, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert [entry.rows for entry in held.entries] == [3, 3]
    assert held.most == pytest.approx(MU)


def test_a_session_gets_no_second_noise(tmp_path):
    releaser(tmp_path, ROWS[:3], total=4.0).charge(b"one", "moments")
    with pytest.raises(GGEURError, match="second release"):
        releaser(tmp_path, ROWS[:3], total=4.0).charge(b"one", "moments")
    assert len(read_ledger(ledger_path(str(tmp_path), 1))[0].entries) == 1


def test_each_stage_of_a_session_is_recorded_once(tmp_path):
    """Before it is sent: a store that was put back in between draws no new noise."""
    for stage in ("moments", "spread"):
        releaser(tmp_path, ROWS).charge(b"one", stage)
    for stage in ("moments", "spread"):
        with pytest.raises(GGEURError, match=f"sent stage '{stage}'.* lost it"):
            releaser(tmp_path, ROWS).charge(b"one", stage)
    (entry,) = read_ledger(ledger_path(str(tmp_path), 1))[0].entries
    assert entry.stages == ["moments", "spread"]


def test_squares_of_mu_add_up(tmp_path):
    allowed = int(mu_of(2.0, 1e-5) ** 2 / MU**2)
    for session in range(allowed):
        releaser(tmp_path, ROWS, total=2.0).charge(b"%d" % session, "moments")
    with pytest.raises(GGEURError, match="nothing is sent"):
        releaser(tmp_path, ROWS, total=2.0).charge(b"more", "moments")
    held, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert allowed == len(held.entries) == 3
    assert held.most == pytest.approx(math.sqrt(3) * MU)


def test_another_projection_does_not_make_other_rows(tmp_path):
    releaser(tmp_path, ROWS).charge(b"one", "moments")
    turned = releaser(tmp_path, -ROWS, preparation="another")
    with pytest.raises(GGEURError, match="nothing is sent"):
        turned.charge(b"two", "moments")


def test_a_ledger_does_not_tell_rows(tmp_path):
    releaser(tmp_path / "a", ROWS).charge(b"one", "moments")
    releaser(tmp_path / "b", ROWS).charge(b"one", "moments")
    spent = [
        set(json.loads(ledger_path(str(tmp_path / x), 1).read_text())["spent"]["l2"])
        for x in "ab"
    ]
    assert not spent[0] & spent[1]  # by the salt


@pytest.mark.parametrize("damage", ["{", '{"form": 2}', "[]", ""])
def test_a_damaged_ledger_is_refused_and_stays(tmp_path, damage):
    releaser(tmp_path, ROWS).charge(b"one", "moments")
    path = ledger_path(str(tmp_path), 1)
    path.write_text(damage)
    with pytest.raises(ConfigError, match="cannot be used"):
        releaser(tmp_path, ROWS)
    assert path.read_text() == damage


def test_a_ledger_without_its_salt_is_refused(tmp_path):
    releaser(tmp_path, ROWS).charge(b"one", "moments")
    salt = next(tmp_path.glob("*.salt"))
    salt.unlink()
    with pytest.raises(ConfigError, match="salt"):
        Ledger(str(tmp_path), 1)
    salt.write_bytes(b"x" * 32)
    with pytest.raises(ConfigError, match="belongs to another ledger"):
        Ledger(str(tmp_path), 1)


def test_the_command_prints_it(tmp_path, capsys):
    releaser(tmp_path, ROWS, total=4.0).charge(b"one", "moments")
    releaser(tmp_path, ROWS, total=4.0).charge(b"two", "moments")
    assert main(["privacy-ledger", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "client_0001.ledger: 2 releases" in said
    assert "epsilon 1)" in said
    assert f"no row has spent more than mu {math.sqrt(2) * MU:.4f}" in said
    assert main(["privacy-ledger", str(tmp_path / "nowhere")]) == 1
    assert "no ledger" in capsys.readouterr().err


def kept(folder):
    return KeptFile(str(folder), "client_0001.upload", "dp.ledger", 1)


def test_one_process_alone_changes_it(tmp_path):
    one, other = kept(tmp_path), kept(tmp_path)
    assert one.read() is other.read() is None
    one.write(b"first")
    one.write(b"second")
    for act in (lambda: other.write(b"third"), other.alone().__enter__):
        with pytest.raises(ConfigError, match="client 1 runs twice"):
            act()
    assert one.path.read_bytes() == b"second"
    assert other.read() == b"second"
    other.write(b"third")


def test_the_salt_is_made_once_and_is_private(tmp_path):
    salt = kept(tmp_path / "a")
    with salt.locked():
        made = salt.salt()
    assert len(made) == 32
    assert kept(tmp_path / "a").salt() == made
    salt.write(b"content")
    for path in (salt.path, salt.path.with_suffix(".salt"), salt.path.parent):
        assert path.stat().st_mode & 0o077 == 0  # its owner alone may read it
    salt.path.with_suffix(".salt").unlink()
    with pytest.raises(ValueError, match="is missing"):
        salt.salt()


def test_of_two_at_once_one_waits_and_finds_that_it_is_late(tmp_path):
    one, other = kept(tmp_path), kept(tmp_path)
    entered, said = threading.Event(), []

    def enter():
        try:
            with other.alone():
                entered.set()
        except ConfigError as error:
            said.append(str(error))

    with one.alone():
        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.1)
        one.write(b"first")
    waiting.join()
    assert not entered.is_set()
    assert "client 1 runs twice" in said[0]


@pytest.mark.parametrize("begun", [False, True], ids=["first stage", "second stage"])
def test_of_two_runs_of_one_client_one_sends(tmp_path, begun):
    """Else their noise would average out, or each would spend."""
    settings = [
        "ggeur.closed_form", "lda",
        "ggeur.privacy.dp.epsilon", "1",
        "ggeur.privacy.dp.epsilon_total", "2",
        "ggeur.privacy.dp.rows_per_class", "20",
        "ggeur.privacy.dp.noise", "client",
        "ggeur.privacy.dp.ledger", str(tmp_path),
    ]  # fmt: skip

    def side():
        going = Run(load_config("ggeur_quickstart", settings))
        return going.engine.side(1, ReleaseClient), going.data.dim

    def ask(one, stage, session=b"s"):
        centre = torch.zeros(dim, dtype=torch.float64)
        return one.vector(ReleaseRequest(session * 16, stage, centre))

    first, dim = side()
    if begun:
        ask(first, "moments")
    other, _ = side()
    stage = "spread" if begun else "moments"
    ask(first, stage)
    for asked in ((stage,), ("moments", b"t")):
        with pytest.raises(GGEURError, match="client 1 runs twice"):
            ask(other, *asked)
    spent, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert len(spent.entries) == 1
