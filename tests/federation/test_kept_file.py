"""Two processes of one client: at most one of them sends."""

import subprocess
import sys
from pathlib import Path

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.kept_file import KeptFile
from federatedscope_ggeur.federation.ledger import ledger_path, read_ledger


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
    assert one.path.stat().st_mode & 0o077 == 0


def test_the_salt_is_made_once(tmp_path):
    salt = kept(tmp_path / "a")
    with salt.locked():
        made = salt.salt()
    assert len(made) == 32
    assert kept(tmp_path / "a").salt() == made
    salt.write(b"content")
    salt.path.with_suffix(".salt").unlink()
    with pytest.raises(ValueError, match="is missing"):
        salt.salt()


#: A client that reads requests from its input, and prints what it answers.
_CLIENT = """
import sys
import torch
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.noisy_release.exchange import (
    ReleaseClient,
)
from federatedscope_ggeur.federation.exchanges.noisy_release.messages import (
    ReleaseRequest,
)

going = Run(load_config("ggeur_quickstart", sys.argv[1:]))
side = going.engine.side(1, ReleaseClient)
print("ready", flush=True)
for line in sys.stdin:
    stage, session = line.split()
    centre = torch.zeros(going.data.dim, dtype=torch.float64)
    request = ReleaseRequest(session.encode() * 16, stage, centre)
    try:
        print("sent", hash(side.vector(request).to_bytes()), flush=True)
    except GGEURError as error:
        print("refused", error, flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Start processes of client 1 with one ledger, which allows three releases."""
    running = []
    settings = [
        "ggeur.closed_form", "lda",
        "ggeur.privacy.dp.epsilon", "1",
        "ggeur.privacy.dp.epsilon_total", "2",
        "ggeur.privacy.dp.rows_per_class", "20",
        "ggeur.privacy.dp.noise", "client",
        "ggeur.privacy.dp.ledger", str(tmp_path),
    ]  # fmt: skip

    def begin():
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", _CLIENT, *settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={
                    "PYTHONHASHSEED": "0",
                    "PYTHONPATH": str(Path(__file__).parents[2]),
                },
            )
        )
        return running[-1]

    yield begin
    for one in running:
        one.stdin.close()
        one.wait(60)
        one.stdout.close()


def ask(*processes, stage="moments", session="s"):
    """What the processes answer that are asked at once."""
    for one in processes:
        one.stdin.write(f"{stage} {session}\n")
        one.stdin.flush()
    return [one.stdout.readline().split(maxsplit=1) for one in processes]


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True], ids=["first stage", "second stage"])
def test_of_two_processes_at_once_one_sends(start, tmp_path, begun):
    """Else their noise would average out, or each would spend."""
    first = start()
    assert first.stdout.readline() == "ready\n"
    if begun:
        assert ask(first)[0][0] == "sent"
    other = start()
    assert other.stdout.readline() == "ready\n"
    stage = "spread" if begun else "moments"
    answers = ask(first, other, stage=stage)
    assert sorted(word for word, _ in answers) == ["refused", "sent"]
    assert "client 1 runs twice" in dict(answers)["refused"]
    loser = (first, other)[[word for word, _ in answers].index("refused")]
    assert ask(loser, session="t")[0][0] == "refused"
    spent, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert len(spent.entries) == 1
