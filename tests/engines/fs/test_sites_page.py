"""docs/sites.md to the letter: folders as sites, processes as machines, TLS, tokens."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import free_port

from federatedscope_ggeur.reporting import read_results

PAGE = Path(__file__).parents[3] / "docs" / "sites.md"
SITES = {"berlin": "art", "paris": "photo", "rome": "sketch"}
PATIENCE = 240.0


def commands() -> dict[str, list[str]]:
    """The page's commands by name, those of Berlin for every site."""
    found = re.findall(r"^ggeur (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {shlex.split(line)[0]: shlex.split(line) for line in found}


@pytest.mark.slow
def test_from_nothing_to_a_prediction_at_a_site(
    federatedscope, embeddings_folder, tmp_path
):
    for package in ("grpc", "cryptography"):
        pytest.importorskip(package)
    home = Path(federatedscope.__file__).parents[3]
    told = commands()
    order = ["certificates", "serve", "check", "join", "predict"]
    assert list(told) == order

    def start(folder: Path, words: list[str]) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "federatedscope_ggeur", *words],
            cwd=folder,
            env={**os.environ, "FEDERATEDSCOPE_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(folder: Path, words: list[str]) -> str:
        process = start(folder, words)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        return said

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
        for line in processes["leader"].stdout:
            if "listening on" in line:
                break

        def of(name: str, command: str) -> list[str]:
            return [word.replace("berlin", name) for word in told[command]]

        said = run(places["berlin"], of("berlin", "check"))
        assert "PROBLEM" not in said
        assert "TLS: the server's certificate is valid for" in said
        assert "token: accepted" in said
        for name, place in places.items():
            processes[name] = start(place, of(name, "join"))
        for name, process in processes.items():
            said, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, (name, said)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    for name, place in places.items():
        left = read_results(place / name / "runs" / "federation")
        assert left.status == "finished"
        said = run(place, of(name, "predict"))
        right, rows = map(int, re.search(r"(\d+) of (\d+) rows", said).groups())
        assert rows == len(left.class_names) * (rows // 12)
        assert right / rows > 0.5
    assert not (places["rome"] / "rome" / "authority.key").exists()
