"""Runs through Flower's own processes: the same bits as on the embedded engine, and
what happens when some of them are killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from own_scores import check_own_score

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.data import ClientData
from federatedscope_ggeur.engines.distributed_data import site_data
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.secure_sums.journal import Journal
from federatedscope_ggeur.federation.exchanges.secure_sums.settings import STAGES
from federatedscope_ggeur.federation.ledger import ledger_path, read_ledger
from federatedscope_ggeur.reporting import RESULTS_FILE, read_results

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "flower.md"
SUMS = (
    "ggeur.privacy.secure_sums", "statistics",
    "ggeur.privacy.secure_sums_radius", 40,
    "ggeur.privacy.secure_sums_max_rows", 4096,
    "ggeur.privacy.secure_sums_fraction_bits", 38,
    "ggeur.closed_form", "lda",
)  # fmt: skip
AUTO = (
    "ggeur.closed_form", "auto",
    "data.splitter", "iid",
    "data.splitter_args", "[]",
    "ggeur.privacy.min_samples", 2,
)  # fmt: skip
NOISE = (
    "ggeur.closed_form", "lda",
    "ggeur.privacy.min_samples", 1,
    "ggeur.privacy.dp.epsilon", 4,
    "ggeur.privacy.dp.rows_per_class", 20,
    "ggeur.privacy.dp.noise", "client",
    "ggeur.privacy.dp.test_seed", 1,
    "ggeur.privacy.dp.ledger", "spent",
    "ggeur.privacy.dp.epsilon_total", 8,
    "ggeur.agreed.class_names", [str(c) for c in range(12)],
)  # fmt: skip
#: The rows of the docs' table.
CASES = {
    "GGEUR, the quickstart": None,
    "SCAFFOLD": ("ggeur.base_method", "scaffold"),
    "one-shot head, chosen by leave-one-out": AUTO,
    "one-shot head from secure sums": SUMS,
    "one-shot head under differential privacy, with seeded noise": NOISE,
    "FedAvg without augmentation": ("ggeur.steps", "[]"),
}


#: s, for what takes a few seconds on a machine with nothing else to do.
PATIENCE = 900.0


def waited(condition) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + PATIENCE
    while not (held := condition()) and time.monotonic() < until:
        time.sleep(0.1)
    assert held


def kill(programs, name: str) -> None:
    """Kill a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(programs.running[name].pid, signal.SIGKILL)
    programs.running[name].wait()


def embedded(cfg):
    """Results and head of the same run on the embedded engine."""
    one = Run(cfg)
    return one.follow(lambda record: None), one.history.head_bytes()


def check_same(folder: Path, cfg) -> None:
    """The run that left `folder` gave what the embedded engine gives, bit for bit."""
    expected, head = embedded(cfg)
    results = read_results(folder)
    assert (folder / "head.safetensors").read_bytes() == head
    assert results.status == "finished"
    assert results.final.accuracy == expected.final.accuracy
    for ours, theirs in zip(results.rounds, expected.rounds):
        assert (ours.accuracy, ours.loss) == (theirs.accuracy, theirs.loss)
        assert ours.clients == theirs.clients
    assert len(results.rounds) == len(expected.rounds)


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_embedded(
    federation, programs, small, quickstart, tmp_path, monkeypatch, case
):
    monkeypatch.chdir(tmp_path)
    if CASES[case] is None:
        more = ["federate.total_round_num", "2", "outdir", str(tmp_path / "out")]
        cfg = load_config(quickstart, more)
    else:
        cfg = small(*CASES[case])
    one = federation(cfg)
    folder = one.run()
    check_same(folder, cfg)
    for k in range(1, one.clients + 1):  # each resident ends with its run
        assert programs.running[f"resident {k}"].wait(PATIENCE) == 0
        left, head = read_results(one.site(k)), one.site(k) / "head.safetensors"
        assert left.status == "finished"
        if CASES[case] is NOISE:  # the sites' folders go, what both runs spent stays
            assert len(read_ledger(ledger_path("spent", k))[0].entries) == 2
        check_own_score(one.site(k), held_at(one.site(k)))
        assert head.read_bytes() == (folder / head.name).read_bytes()


def held_at(site: Path) -> ClientData:
    """The rows of a site, by its own file."""
    return site_data(load_config(site / "site.yaml", on_fs=True)).held


def test_the_page_has_the_cases(flower):
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line]
    told = [row.split("|")[1].strip() for row in rows if row.endswith("| equal |")]
    assert told == list(CASES)


class Going:
    """A run that goes on while the test does something to it."""

    def __init__(self, one, log: Path, settings=()):
        self.one, self.log, self.folder, self.error = one, log, None, None
        self._settings = settings
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self.folder = self.one.run(self._settings)
        except GGEURError as error:
            self.error = str(error)

    def says(self, words: str) -> None:
        """Wait until the server has said this."""

        def said() -> bool:
            assert self._thread.is_alive(), f"it ended before {words!r}: {self.error}"
            return self.log.exists() and words in self.log.read_text(errors="replace")

        waited(said)

    def end(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the run did not end"


def test_a_resident_killed_between_two_stages_of_a_sum(federation, programs, small):
    """It comes back, sends what it had sent before, and nothing changes."""
    cfg = small(*SUMS)
    one = federation(cfg)
    going = Going(one, programs.folder / "run.log")
    sums = one.site(2) / "secure_sums"
    waited(lambda: held(sums))
    sent = held(sums)
    kill(programs, "resident 2")
    before = Journal(str(sums), 2).current
    assert sent <= before.vectors.keys() < {*STAGES}
    one.start_resident(2)
    going.end()
    assert going.error is None
    check_same(going.folder, cfg)
    # One session and one key; what was sent before it was killed is what was sent.
    after = Journal(str(sums), 2).current
    assert (after.session, after.key) == (before.session, before.key)
    assert all(before.vectors[one].equal(after.vectors[one]) for one in before.vectors)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in sums.glob("*.sums")}
    assert modes == {0o600}


def held(sums: Path) -> set[str]:
    """The stages of a sum in which client 2 has sent a vector."""
    if not (sums / "client_0002.sums").exists():
        return set()
    current = Journal(str(sums), 2).current
    return set() if current is None else {*current.vectors}


def test_a_supernode_killed_in_a_round_comes_back(federation, programs, small):
    one = federation(small("ggeur.quorum", 2, "federate.total_round_num", 4))
    going = Going(one, programs.folder / "run.log")
    going.says("round 0:")
    kill(programs, "supernode 3")
    going.says("client 3 is gone: ")
    one.start_supernode(3)
    going.says("client 3 (domain ")
    going.end()
    assert going.error is None
    clients = [record.clients for record in read_results(going.folder).rounds]
    assert [1, 2] in clients
    assert all({1, 2} <= set(trained) for trained in clients)


def test_too_few_sites_end_the_run_by_name(federation, programs, small):
    one = federation(small("ggeur.quorum", 3, "federate.total_round_num", 4))
    going = Going(one, programs.folder / "run.log")
    going.says("round 1 of 4 is over")
    kill(programs, "resident 1")
    going.end()
    assert "2 of 3 clients are left, but ggeur.quorum needs 3" in going.error
    assert "client 1" in going.error
    for k in (2, 3):  # the last model that the sites which are left have received
        waited((one.site(k) / RESULTS_FILE).exists)
        assert read_results(one.site(k)).status == "failed"
        check_own_score(one.site(k), held_at(one.site(k)))


def test_a_superlink_that_ends_is_named_and_the_run_goes_on(
    federation, programs, small
):
    cfg = small("federate.total_round_num", 3, "ggeur.checkpoint_every", 0.001)
    one = federation(cfg)
    going = Going(one, programs.folder / "run.log")
    going.says("round 0:")
    checkpoint = Path(cfg.outdir) / cfg.expname / "private" / "checkpoint"
    waited(checkpoint.exists)
    os.kill(programs.running["superlink"].pid, signal.SIGKILL)
    going.end()
    assert "SuperLink ended" in going.error
    kill(programs, "superlink")  # what it started
    one.superlink.start()
    for k in (1, 2, 3):  # it knows the SuperNodes of before no more
        kill(programs, f"supernode {k}")
        one.start_supernode(k)
    again = Going(
        one, programs.folder / "run.log", ["federate.restore_from", str(checkpoint)]
    )
    again.end()
    assert again.error is None
    check_same(again.folder, cfg)


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
    going = Going(one, programs.folder / "run.log")
    going.end()
    told = going.error or ""
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
