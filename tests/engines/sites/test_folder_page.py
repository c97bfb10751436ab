"""The section of docs/sites.md on the folder to the letter: folders as machines."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest

from federatedscope_ggeur.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "sites.md"
SITES = ("berlin", "paris", "rome")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_from_nothing_to_a_prediction(embeddings_folder, tmp_path, monkeypatch, capsys):
    text = PAGE.read_text("utf-8").partition("## By folder")[2]
    settings = text[text.index("# federation.yaml") :].partition("```")[0]
    told = re.findall(r"^ggeur (.*)$", text, re.MULTILINE)
    new_server, serve, new_site, join = map(shlex.split, told)
    shared = tmp_path / "shared"
    shared.mkdir()

    def run(side: str, words: list[str]) -> str:
        monkeypatch.chdir(tmp_path / side)
        capsys.readouterr()
        words = [str(shared) if word == "SHARED" else word for word in words]
        monkeypatch.setattr("sys.stdin", Terminal("y\n" * len(SITES)))
        assert main(words) == 0
        return capsys.readouterr().out.splitlines()[-1]

    lines = {}
    for side, data in zip(("server", *SITES), (None, "art", "photo", "sketch")):
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
    heads = [
        (tmp_path / side / "runs" / "hearts" / "head.safetensors").read_bytes()
        for side in SITES
    ]
    assert len(set(heads)) == 1
