"""What every engine does with an exchange: one that asks and tells in all ways.

An engine has a case unless `CANNOT` says why not. The exchange is a plugin, so all of
this holds for a user's own exchange, too.
"""

import shutil
import sys
from pathlib import Path

import pytest
from engines_under_test import ENGINES, Embedded
from kept_rounds import checkpoint_rounds
from own_process import until

from federatedscope_ggeur.engines.sites.leading import STOPPED
from federatedscope_ggeur.engines.sites.watch import read_status
from federatedscope_ggeur.federation.exchanges import EXCHANGES

OWN_STORE = "it goes on from its own store: tests/engines/sites/test_folder_runs.py"
TOGETHER = "all clients are in the server's process, which asks one after the other"
HERE = "its processes are Flower's; here they are calls in this process"
#: The cases that an engine cannot have, and why.
CANNOT = {
    ("embedded", "late"): TOGETHER,
    ("embedded", "lost"): TOGETHER,
    ("embedded", "killed server"): "it takes all clients with it: this is `stopped`",
    ("standalone", "late"): TOGETHER,
    ("standalone", "lost"): TOGETHER,
    ("standalone", "killed server"): "as for the embedded engine",
    ("folder", "lost"): "nobody has a connection: until the deadline, none is lost",
    ("folder", "stopped"): OWN_STORE,
    ("folder", "killed server"): OWN_STORE,
    ("flower", "stopped"): HERE,
    ("flower", "late"): HERE,
    ("flower", "lost"): HERE,
    ("flower", "killed server"): HERE,
}
CLIENTS, ALL = 3, [1, 2, 3]
FILES = {"results.json", "metrics.csv", "curve.png", "head.safetensors", "config.yaml"}


def engines_with(case: str):
    """For every engine that has this case."""
    names = [name for name in ENGINES if (name, case) not in CANNOT]
    slow = [pytest.param(n, marks=pytest.mark.slow) if n != "embedded" else n
            for n in names]  # fmt: skip
    return pytest.mark.parametrize("engine", slow, indirect=True)


@pytest.fixture
def place(tmp_path) -> Path:
    """What is to go wrong; see `toy_question.py`."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture
def go(engine, quickstart, embeddings_folder, place, tmp_path):
    """Begin a run of three clients over so many rounds."""
    here = Path(__file__).parent
    for file in (quickstart, here / "toy_question.py"):
        shutil.copy(file, tmp_path)
    settings = [
        "ggeur.plugins", "['toy_question']",
        "ggeur.toy_question.place", place,
        "data.type", "embeddings@ggeur",
        "data.root", embeddings_folder,
        "federate.client_num", CLIENTS,
        "federate.make_global_eval", True,
        "ggeur.steps", "[]",
        "ggeur.checkpoint_every", 0.001,
    ]  # fmt: skip

    def begin(rounds, *more):
        path = tmp_path / quickstart.name
        own = [*settings, "federate.total_round_num", rounds, *more]
        return engine.begin(path, own, CLIENTS)

    yield begin
    # Not all parts as they were: extras that a run has loaded stay loaded.
    for name, part in dict(EXCHANGES).items():
        if part.__module__ == "toy_question":
            del EXCHANGES._parts[name]
    sys.modules.pop("toy_question", None)


def reached(file: Path) -> None:
    until(file.with_name(f"{file.name} begun").exists)


def check_as_embedded(done, engine, tmp_path) -> None:
    """The run ended as the undisturbed one does on the embedded engine."""
    here = Embedded(tmp_path).begin(*engine.begun).end()
    assert done.head == here.head
    assert done.accuracies == here.accuracies
    assert done.trained == here.trained


@pytest.mark.slow
@engines_with("whole")
def test_all_are_asked_and_told_and_files_are_left(engine, go, tmp_path):
    done = go(2).end()
    assert done.ended == dict.fromkeys((0, *ALL) if engine.apart else (0,), True)
    for number in range(3):
        heard = done.heard(number)
        assert list(heard) == ALL
        for k, said in heard.items():
            assert said[:5] == [k, number + 7, number, 100 + k, 1]
    processes = {said[5] for said in done.heard(2).values()}
    assert len(processes) == (CLIENTS if engine.apart else 1)
    assert done.results.status == "finished"
    assert done.trained == [ALL] * 2
    assert done.results.round0.exchanges_bytes_up > 0
    assert done.files >= FILES
    check_as_embedded(done, engine, tmp_path)
    for folder in done.sites.values():
        assert (folder / "head.safetensors").read_bytes() == done.head
        assert not engine.apart or read_status(folder)["state"] == "finished"


@engines_with("refused")
def test_an_answer_that_is_refused_ends_its_client_alone(engine, go, place):
    (place / "lie 3 1").touch()
    done = go(2, "ggeur.quorum", 2).end()
    assert done.heard(1)[3][2] == 0  # what round 0 left
    assert done.trained == [ALL, [1, 2]]
    assert "message from client 3 refused: field 'own': this is not its" in done.log
    assert done.ended.pop(3, False) is False
    assert all(done.ended.values())
    assert done.results.status == "finished"


@engines_with("late")
def test_one_that_is_late_is_asked_again_and_in_the_end_barred(go, place):
    """Nobody but client 3 is asked anything of the short deadline."""
    held = place / "hold 1 2"
    late = [place / "late 3 1", place / "late 3 3"]
    for file in (held, *late):
        file.touch()
    going = go(4, "ggeur.quorum", 2, "ggeur.deadline.evaluate", 1)
    going.says("client 3: no answer (toy_late) within 1 s")
    reached(held)
    late[0].unlink()
    going.says("client 3 is back")
    held.unlink()
    going.says("client 3 is barred after 2 missed deadlines")
    late[1].unlink()
    done = going.end()
    assert done.trained == [ALL, [1, 2], ALL, [1, 2]]
    assert done.ended == {0: True, 1: True, 2: True, 3: False}


@engines_with("lost")
def test_one_that_is_killed_may_come_back_and_another_stays_away(go, place):
    """Above the quorum the others go on. What it missed, it is asked then."""
    held = place / "hold 1 2"
    for file in (held, place / "die 2 1", place / "die 3 1"):
        file.touch()
    going = go(3, "ggeur.quorum", 1)
    for k in (2, 3):
        going.killed(k)
        going.says(f"client {k} is gone: ")
    reached(held)
    going.start_again(3)
    going.says("client 3 (domain ", times=2)
    held.unlink()
    done = going.end()
    assert done.trained == [ALL, [1], [1, 3]]
    assert done.results.rounds[-1].exchanges["toy_question"]["caught_up"] == [3]
    assert done.heard(3)[3][:4] == [3, 10, 3, 103]
    assert done.heard(3)[2][2] == 0  # of round 0
    assert done.ended == {0: True, 1: True, 2: False, 3: True}


@engines_with("lost")
def test_below_the_quorum_the_run_ends_by_name(engine, go, place, tmp_path):
    (place / "die 3 2").touch()
    done = go(2, "ggeur.quorum", 3).end()
    assert not any(done.ended.values())
    assert "2 of 3 clients are left, but ggeur.quorum needs 3" in done.log
    assert "client 3: " in done.log
    assert done.results.status == "failed"
    assert done.trained == [ALL]
    config, settings, clients = engine.begun
    one = [*settings, "federate.total_round_num", 1]
    here = Embedded(tmp_path).begin(config, one, clients).end()
    for k in (1, 2):  # the last model that they have received
        left = done.sites[k] / "head.safetensors"
        until(left.exists)
        assert left.read_bytes() == here.head
        assert read_status(done.sites[k])["state"] != "finished"


@pytest.mark.slow
@engines_with("stopped")
def test_a_stopped_run_leaves_its_files_and_goes_on_as_if_never_stopped(
    engine, go, place, tmp_path
):
    (place / "stop 0 2").touch()
    going = go(2)
    done = going.end()
    assert done.ended[0] is False
    assert done.results.status == "interrupted"
    if len(done.ended) > 1:
        for k, folder in done.sites.items():
            assert done.ended[k]
            assert (folder / "head.safetensors").read_bytes() == done.head
            said = read_status(folder)
            assert (said["state"], said["error"]) == ("interrupted", STOPPED)
    assert done.trained == [ALL]
    assert done.files >= FILES
    checkpoint = done.folder / "private" / "checkpoint"
    assert checkpoint_rounds(checkpoint) == 1
    again = engine.go_on(going, checkpoint).end()
    assert all(again.ended.values())
    check_as_embedded(again, engine, tmp_path)


@engines_with("killed server")
def test_a_killed_server_finds_its_clients_again(engine, go, place, tmp_path):
    (place / "die 0 2").touch()
    kept = tmp_path / "kept" / "checkpoint"
    going = go(3, "federate.save_to", kept)
    going.killed(0)
    going.start_again(0, "federate.restore_from", kept)
    done = going.end()
    assert all(done.ended.values())
    kept.parent.rename(tmp_path / "aside")  # no run writes over another's
    check_as_embedded(done, engine, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["serve and join"], indirect=True)
def test_a_killed_site_takes_up_the_state_of_its_method(engine, go, place, tmp_path):
    (place / "die 2 3").touch()
    wait = "ggeur.deadline.return", 60
    going = go(4, "ggeur.base_method", "scaffold", *wait)
    going.killed(2)
    going.start_again(2)
    check_as_embedded(going.end(), engine, tmp_path)
