"""docs/sites.md to the letter: folders as sites, processes as machines, TLS, tokens."""

from __future__ import annotations

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


def commands() -> dict[str, list[str]]:
    """The page's commands by name, those of Berlin for every site."""
    text = PAGE.read_text("utf-8").partition("## By folder")[0]
    found = re.findall(r"^ggeur (.*)$", text, re.MULTILINE)
    return {shlex.split(line)[0]: shlex.split(line) for line in found}


@pytest.mark.slow
def test_from_nothing_to_a_prediction_at_a_site(
    fork_server, embeddings_folder, tmp_path, monkeypatch
):
    pytest.importorskip("cryptography")
    told = commands()
    order = ["certificates", "serve", "check", "join", "predict"]
    assert list(told) == order

    def start(place: Path, words: list[str]) -> Worker:
        folder = tmp_path / f"{words[0]} at {place.name}"
        return Worker(fork_server, folder, words, str(place))

    def run(place: Path, words: list[str]) -> str:
        worker = start(place, words)
        assert worker.wait() == 0, worker
        return worker.output

    text = PAGE.read_text("utf-8")
    plan = text[text.index("# federation.yaml") :].partition("```")[0]
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
