"""Words while a run goes on, and the file that says how it stands."""

import errno
import json
import os
import re
import threading
from pathlib import Path

import pytest
from own_process import PATIENCE, until
from written_runs import made

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.sites.watch import (
    METRICS_PROM,
    STATES,
    STATUS_FILE,
    Watch,
    closing,
    is_fresh,
    metrics_text,
    round_line,
    waits_for,
)


class Stands:
    """What a process does; counts how often it is asked."""

    def __init__(self):
        self.doing, self.asked = "waiting for client 3", threading.Semaphore(0)

    def __call__(self):
        self.asked.release()
        return {"doing": self.doing, "clients": {"3": "missing"}}

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=PATIENCE)


def read(folder):
    return json.loads((folder / STATUS_FILE).read_text())


def test_a_monitor_asks_with_the_file_of_the_process(tmp_path, ggeur):
    file = tmp_path / "server.yaml"
    file.write_text("outdir: out\nexpname: run")
    ask = ["healthy", "--cfg", file, "expname", "other"]
    none = "no process of this file"
    folder = tmp_path / "out" / "other"
    folder.mkdir(parents=True)
    stands = Stands()
    with closing(Watch(folder, "server", stands, pause=0.02)):
        stands.wait(2)
        assert none not in ggeur(*ask).out
        assert ggeur(*ask[:3], status=1).out.count(none) == 1
    assert ggeur(*ask, status=1).out.count(none) == 1
    bundled = ggeur("healthy", "--cfg", "ggeur_quickstart.yaml", status=1).out
    assert bundled.count(none) == 1
    with pytest.raises(SystemExit, match="2"):
        main(["healthy"])
    file.write_text("outdir: [out\nexpname: run")
    assert "server.yaml is not valid YAML: line 2" in ggeur(*ask[:3], status=1).err
    file.write_text("outdir: 3")
    said = "server.yaml: outdir and expname must be texts"
    assert said in ggeur(*ask[:3], status=1).err


def test_a_wait_is_said_again_and_again_and_the_file_follows(tmp_path, caplog):
    caplog.set_level("INFO", logger="federatedscope_ggeur")
    stands = Stands()
    with closing(Watch(tmp_path, "server", stands, pause=0.02)):
        stands.wait(4)
        assert is_fresh(tmp_path)
        found = read(tmp_path)
        assert (found["role"], found["state"]) == ("server", "running")
        assert found["doing"] == "waiting for client 3"
        assert found["clients"] == {"3": "missing"}
        stands.doing = ""
        stands.wait(2)
    said = [r.getMessage() for r in caplog.records]
    assert sum(line.startswith("waiting for client 3, since ") for line in said) >= 2
    assert read(tmp_path)["state"] == "finished"
    assert not is_fresh(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {STATUS_FILE, METRICS_PROM}


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [(KeyboardInterrupt(), "interrupted", None), (ValueError("why"), "failed", "why")],
)
def test_how_it_ended_stands_in_the_file(tmp_path, error, state, said):
    with pytest.raises(type(error)), closing(Watch(tmp_path, "client 2", Stands())):
        raise error
    found = read(tmp_path)
    assert (found["state"], found.get("error")) == (state, said)


def test_on_a_full_disk_the_file_says_the_end_in_its_own_place(tmp_path, monkeypatch):
    def full(file) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    watch = Watch(tmp_path, "server", Stands())
    until(lambda: is_fresh(tmp_path))
    monkeypatch.setattr(os, "fsync", full)
    watch.close("failed", "why")
    found = read(tmp_path)
    assert (found["state"], found["error"]) == ("failed", "why")
    assert 'state="failed"} 1' in (tmp_path / METRICS_PROM).read_text()


def test_prometheus_reads_what_the_file_says():
    content = {"role": 'client "3"', "state": "running", "seconds": 1.5}
    content["clients"] = {"1": "here", "2": "missing", "3": "here"}
    content.update(rounds=20, rounds_done=4)
    folder = Path("/runs") / "a\\b\nc"
    text = metrics_text(content, folder, 1e9)
    label = r'folder="/runs/a\\b\nc",role="client \"3\""'
    found = dict(re.findall(r"^(ggeur_.*) ([0-9.e+]+)$", text, re.MULTILINE))
    values = {"updated": 1e9, "waiting": 1.5, "rounds": 20, "rounds_done": 4}
    values.update(clients=3, clients_here=2)
    wanted = {f"ggeur_{name}{{{label}}}": value for name, value in values.items()}
    for state in STATES:
        wanted[f'ggeur_state{{{label},state="{state}"}}'] = float(state == "running")
    assert {name: float(value) for name, value in found.items()} == wanted
    told = re.findall(r"^# (HELP|TYPE) (ggeur_\w+) (.+)$", text, re.MULTILINE)
    assert len(told) == 2 * (1 + len(values))
    assert len(text.splitlines()) == len(told) + len(found)


def test_without_a_folder_there_is_no_file(tmp_path):
    with closing(Watch(tmp_path / "nowhere", "server", Stands())):
        pass
    assert not list(tmp_path.iterdir())
    assert not is_fresh(tmp_path / "nowhere")


def test_whom_a_person_reads_of():
    assert waits_for("train (round 2)", [3, 5], 6) == (
        "waiting for train (round 2) of 2 of 6 clients: 3, 5"
    )
    assert waits_for("train (round 2)", [], 6) == ""
    many = waits_for("the joining", list(range(1, 100)), 200)
    assert many.endswith("1, 2, 3, 4, 5, 6, 7, 8 and 91 more")


def test_a_round_is_told_with_the_time_that_is_left():
    rounds = made([{"art": 0.5}, {"art": 0.75}], seed=1).rounds  # 0.1 and 0.2 s
    line = "round 2 of 42 is over, 0.2 s, AVG 75.00%; about 6 s left"
    assert round_line(rounds, 42) == line
    assert "left" not in round_line(rounds, 2)
