"""Flower's own processes: what ends with what, and code that is not ours in them.

The runs themselves are in `contract/`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.reporting import read_results

pytestmark = [pytest.mark.slow, pytest.mark.federation]


#: s, for what takes a few seconds on a machine with nothing else to do.
PATIENCE = 900.0


def waited(condition) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + PATIENCE
    while not (held := condition()) and time.monotonic() < until:
        time.sleep(0.1)
    assert held


def error_of(run) -> str:
    """The error with which a run ends."""
    with pytest.raises(GGEURError) as error:
        run()
    return str(error.value)


def kill(programs, name: str) -> None:
    """Kill a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(programs.running[name].pid, signal.SIGKILL)
    programs.running[name].wait()


def test_a_superlink_that_ends_is_named_and_the_run_goes_on(
    federation, programs, small
):
    """With its SuperNodes, which it knows no more when it is back."""
    cfg = small("federate.total_round_num", 3, "ggeur.checkpoint_every", 0.001)
    one = federation(cfg)
    checkpoint = Path(cfg.outdir) / cfg.expname / "private" / "checkpoint"
    ended = []
    going = threading.Thread(target=lambda: ended.append(error_of(one.run)))
    going.start()
    waited(checkpoint.exists)
    os.kill(programs.running["superlink"].pid, signal.SIGKILL)
    going.join(PATIENCE)
    assert "SuperLink ended" in ended[0]
    kill(programs, "superlink")  # what it started
    one.superlink.start()
    for k in (1, 2, 3):  # it knows the SuperNodes of before no more
        kill(programs, f"supernode {k}")
        one.start_supernode(k)
    folder = one.run(["federate.restore_from", str(checkpoint)])
    run = Run(cfg)
    run.follow(lambda record: None)
    assert (folder / "head.safetensors").read_bytes() == run.history.head_bytes()
    assert read_results(folder).status == "finished"


def test_an_interruption_leaves_files_and_no_process(flower, quickstart, tmp_path):
    """Ctrl-C while a run goes on: its processes name a folder below TMPDIR."""
    command = [sys.executable, "-m", "federatedscope_ggeur", "--engine", "flower"]
    command += ["--cfg", str(quickstart), "outdir", str(tmp_path / "out")]
    log = tmp_path / "out" / "ggeur_quickstart" / "log.txt"
    with tempfile.TemporaryDirectory() as short:
        environ = {**os.environ, "TMPDIR": short}
        running = subprocess.Popen(
            command, env=environ, stderr=subprocess.PIPE, text=True
        )
        waited(lambda: log.exists() and "round 1 of" in log.read_text())
        assert len(of_folder(short)) > 9
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE)
        assert running.returncode == 130
        assert of_folder(short) == []
        assert list(Path(short).iterdir()) == []
    assert f"the files so far are in {log.parent}" in said
    left = read_results(log.parent)
    assert left.status == "interrupted"
    assert len(left.rounds) >= 1


def of_folder(folder: str) -> list[str]:
    """The processes whose environment names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if folder.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


SUMS = (
    "ggeur.closed_form", "lda",
    "ggeur.privacy.secure_sums", "statistics",
    "ggeur.privacy.secure_sums_fraction_bits", 20,
)  # fmt: skip


@pytest.mark.parametrize("program", ["ours", "Flower's own"])
def test_a_hostile_fab_gets_no_answer(federation, programs, small, program):
    """Another ServerApp and ClientApp, with what the socket's path gives them.

    Our program does not even run the ClientApp, as `ggeur join` starts it.
    """
    one = federation(small(*SUMS))
    package, mark = programs.folder / "app" / "ggeur_federation", programs.folder / "x"
    (package / "server.py").write_text(_HOSTILE_SERVER)
    (package / "client.py").write_text(f"open({str(mark)!r}, 'w')\n{_HOSTILE_CLIENT}")
    project = package.parent / "pyproject.toml"
    ours = "federatedscope_ggeur.engines.flower.client"
    text = project.read_text()
    assert ours in text
    project.write_text(text.replace(ours, "ggeur_federation.client"))
    if program != "ours":
        used = programs.folder / "bin" / "flwr-clientapp"
        used.unlink()
        used.symlink_to(Path(sys.executable).with_name("flwr-clientapp"))
    told = error_of(one.run)
    assert told.startswith("answers: ")
    assert mark.exists() == (program != "ours")
    answers = told.removeprefix("answers: ").split(" | ")
    if program == "ours":
        assert len(answers) == 1
        assert "this package's ClientApp" in answers[0]
    else:
        assert len(answers) == 3
        assert "this client's settings do not allow it to answer" in answers[0]
        assert "is not a question" in answers[1]
        assert "refused" in answers[2]
    assert "Traceback" not in programs.words("resident 1")


_HOSTILE_SERVER = """
import json
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 3:
        time.sleep(0.5)
    content = RecordDict({"x": ConfigRecord({"x": 1})})
    sent = grid.push_messages([Message(content, nodes[0], "query")])
    while not (replies := list(grid.pull_messages(sent))):
        time.sleep(0.5)
    found = replies[0].content.config_records
    told = [text for record in found.values() for text in record.values()]
    if "told" in found:
        told = found["told"]["told"]
    status = {"state": "failed", "error": "answers: " + " | ".join(told)}
    with open(context.run_config["folder"] + "/status.json", "w") as file:
        json.dump(status, file)
"""
_HOSTILE_CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from federatedscope_ggeur.engines.flower.carried import NOBODY, packed, unpacked
from federatedscope_ggeur.engines.flower.pipe import exchange
from federatedscope_ggeur.transport import Envelope, TransportSettings

app = ClientApp()
LIMITS = TransportSettings(2**20)


@app.query()
def attack(message, context):
    path, told = context.node_config["resident"], []

    def ask(session, *envelopes):
        data = exchange(path, packed(session, envelopes, LIMITS))
        return unpacked(data, LIMITS, "it")

    session, _ = ask(NOBODY, Envelope("join_in", 0, (b"0123456789abcdef", bytes(16))))
    for kind, parts in (
        ("statistics_request", ()), ("read_rows", ()), ("geometry", (b"x", b"y")),
    ):
        _, (said,) = ask(session, Envelope(kind, 0, parts))
        told.append(said.parts[0].decode() if said.kind == "failed" else said.kind)
    exchange(path, b"garbage")
    return Message(RecordDict({"told": ConfigRecord({"told": told})}), reply_to=message)
"""
