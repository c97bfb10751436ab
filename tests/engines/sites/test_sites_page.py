"""docs/sites.md to the letter: folders as machines, and processes or turns as sites."""

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest
from own_scores import check_own_score
from processes import Worker, free_port

from federatedscope_ggeur.engines.sites.roles import role_config, site_data
from federatedscope_ggeur.reporting import read_results

PAGE = Path(__file__).parents[3] / "docs" / "sites.md"
SITES = {"berlin": "art", "paris": "photo", "rome": "sketch"}


def settings_and_commands(by_folder: bool) -> tuple[str, list[list[str]]]:
    """Those of the section on the folder, or of the page before it."""
    text = PAGE.read_text("utf-8").partition("## By folder")[2 * by_folder]
    settings = text[text.index("# federation.yaml") :].partition("```")[0]
    found = re.findall(r"^ggeur (.*)$", text, re.MULTILINE)
    return settings, list(map(shlex.split, found))


@pytest.mark.slow
def test_from_nothing_to_a_prediction_at_a_site(
    fork_server, embeddings_folder, tmp_path, monkeypatch
):
    pytest.importorskip("cryptography")
    plan, commands = settings_and_commands(by_folder=False)
    told = {words[0]: words for words in commands}
    assert list(told) == ["certificates", "serve", "check", "join", "predict"]

    def start(place: Path, words: list[str]) -> Worker:
        folder = tmp_path / f"{words[0]} at {place.name}"
        return Worker(fork_server, folder, words, str(place))

    def run(place: Path, words: list[str]) -> str:
        worker = start(place, words)
        assert worker.wait() == 0, worker
        return worker.output

    plan = plan.replace("server.example.org", "127.0.0.1")
    plan = plan.replace("50050", str(free_port()))
    plan = plan.replace("total_round_num: 20", "total_round_num: 2")
    leader = tmp_path / "leader"
    leader.mkdir()
    (leader / "federation.yaml").write_text(plan)
    run(leader, told["certificates"])
    places = {}
    for name, domain in SITES.items():
        places[name] = tmp_path / f"machine of {name}"
        places[name].mkdir()
        shutil.move(leader / "federation" / name, places[name])
        data = places[name] / name / "data"
        data.mkdir()
        shutil.copy(embeddings_folder / f"{domain}.npz", data / "rows.npz")
    processes = {"leader": start(leader, told["serve"])}
    try:
        processes["leader"].wait_for("listening on")

        def of(name: str, command: str) -> list[str]:
            return [word.replace("berlin", name) for word in told[command]]

        said = run(places["berlin"], of("berlin", "check"))
        assert "PROBLEM" not in said
        assert "TLS: the server's certificate is valid for" in said
        assert "token: of client 1" in said
        for name, place in places.items():
            processes[name] = start(place, of(name, "join"))
        for process in processes.values():
            assert process.wait() == 0, process
        # It says what happens, and at the end where files are.
        assert "has joined: 3 of 3" in processes["leader"].output
        assert "results.json" in processes["leader"].output
    finally:
        for process in processes.values():
            process.kill()
    monkeypatch.chdir(tmp_path)  # reading a site's file goes to its folder
    for name, place in places.items():
        own = place / name
        held = site_data(role_config(str(own / "site.yaml"), "client")).held
        left = read_results(own / "runs" / "federation")
        assert left.status == "finished"
        check_own_score(own / "runs" / "federation", held)
    said = run(places["rome"], of("rome", "predict"))
    right, rows = map(int, re.search(r"(\d+) of (\d+) rows", said).groups())
    assert rows == len(left.class_names) * (rows // 12)
    assert right / rows > 0.5
    assert not (places["rome"] / "rome" / "authority.key").exists()


WAYS = "from", "to"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_from_nothing_to_a_prediction_by_folder(
    embeddings_folder, tmp_path, monkeypatch, ggeur
):
    settings, commands = settings_and_commands(by_folder=True)
    new_server, serve, new_site, join = commands
    shared = tmp_path / "shared"
    shared.mkdir()

    def run(side: str, words: list[str]) -> str:
        monkeypatch.chdir(tmp_path / side)
        words = [str(shared) if word == "SHARED" else word for word in words]
        monkeypatch.setattr("sys.stdin", Terminal("y\n" * len(SITES)))
        return ggeur(*words).out.splitlines()[-1]

    lines = {}
    for side, data in {"server": None, **SITES}.items():
        (tmp_path / side / "data").mkdir(parents=True)
        (tmp_path / side / "federation.yaml").write_text(settings)
        words = [side if word == "berlin" else word for word in new_site]
        lines[side] = run(side, words if data else new_server)
        if data:
            rows = embeddings_folder / f"{data}.npz"
            (tmp_path / side / "data" / "rows.npz").write_bytes(rows.read_bytes())
    for side in SITES:
        with (tmp_path / side / "keys" / "known.txt").open("a") as file:
            file.write(lines["server"] + "\n")
        with (tmp_path / "server" / "keys" / "known.txt").open("a") as file:
            file.write(lines[side] + "\n")
    over = set()
    for _ in range(20):
        for side in ("server", *SITES):
            if side not in over:
                said = run(side, [*(join if side in SITES else serve), "--once"])
                over |= {side} if "the run is over" in said else set()
    assert len(over) == 4
    for side in SITES:
        run(side, ["predict", "--run", "runs/hearts", "data/rows.npz"])
        assert [len(list(shared.glob(f"{way}/{side}/*"))) for way in WAYS] == [6, 6]
    left = [tmp_path / side / "runs" / "hearts" for side in SITES]
    assert len({(place / "head.safetensors").read_bytes() for place in left}) == 1
