"""Folders of others whose files are links, devices or pipes: nothing outside changes,
and nothing hangs. Books: tests/book/test_foreign_books.py."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from own_process import PATIENCE

from federatedscope_ggeur import FederatedClassifier
from federatedscope_ggeur.cli import main

STUDY = """\
base: ggeur_quickstart
seeds: [0, 1]
settings: {federate.total_round_num: 1}
"""
PLAN = """\
server: [localhost, 127.0.0.1]
port: 53123
sites: [berlin, paris]
settings:
  data: {type: embeddings@ggeur, root: rows}
"""
#: The commands that read a folder of each kind.
COMMANDS = {
    "run": [
        ["predict", "--run", "run", "rows/day.npz"],
        ["export", "run", "--card", "card.md"],
        ["compare", "run"],
        ["--cfg", "run/config.yaml", "federate.restore_from", "run/private/checkpoint",
         "federate.save_to", "run/private/checkpoint", "outdir", "new"],
    ],
    "study": [
        ["compare", "study/seed_0", "study/seed_1.part"],
        ["study", "study.yaml", "--out", "study", "--workers", "1"],
    ],
    "classifier": [["predict", "--run", "classifier", "rows/day.npz"]],
    "federation/berlin": [["check", "--cfg", "federation/berlin/site.yaml"]],
    "federation/server": [["healthy", "--cfg", "federation/server/server.yaml"]],
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of each kind, as the commands make it, and a user's own files."""
    pytest.importorskip("cryptography")
    place = tmp_path_factory.mktemp("made")
    (place / "study.yaml").write_text(STUDY)
    (place / "plan.yaml").write_text(PLAN)
    for folder in ("rows", "home/kept"):
        (place / folder).mkdir(parents=True)
    for path in ("home/mine", "home/kept/mine"):
        (place / path).write_text("mine")
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    features = (rng.normal(size=(40, 4)) + labels[:, None]).astype("float32")
    for name in ("day", "night"):
        np.savez(place / "rows" / f"{name}.npz", features=features, labels=labels)
    FederatedClassifier("lda").fit(features, labels).save(place / "classifier")
    words = ["data.type", "embeddings@ggeur", "data.root", "rows"]
    words += ["federate.client_num", "2", "federate.total_round_num", "1"]
    words += ["ggeur.base_method", "scaffold", "outdir", ".", "expname", "run"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for command in (
            ["--cfg", "ggeur_quickstart", *words],
            COMMANDS["study"][-1],
            ["certificates", "plan.yaml"],
        ):
            assert main(command) == 0
    (place / "study" / "seed_1").rename(place / "study" / "seed_1.part")
    return place


def pipe(path, place):
    os.mkfifo(path)


def device(path, place):
    path.symlink_to("/dev/zero")


def file_of_others(path, place):
    path.symlink_to(place / "home" / "mine")


def folder_of_others(path, place):
    path.symlink_to(place / "home" / "kept", target_is_directory=True)


def nowhere(path, place):
    path.symlink_to(place / "home" / "new")


def content(folder):
    paths = sorted(folder.rglob("*"))
    return {p: p.read_bytes() if p.is_file() else None for p in paths}


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [pipe, device, file_of_others, folder_of_others, nowhere]
)
@pytest.mark.parametrize("kind", COMMANDS)
def test_nothing_outside_changes_and_nothing_hangs(
    made, tmp_path, monkeypatch, capfd, kind, make
):
    files = [p.relative_to(made) for p in sorted((made / kind).rglob("*"))]
    assert len(files) > 1
    if kind == "study":  # it is refused as a whole
        names = ("study.json", "seed_1.part", "seed_1.part/log.txt", "seed_0/cell.json")
        files = [Path(kind, name) for name in names]
    for number, file in enumerate(files):
        place = tmp_path / str(number)
        shutil.copytree(made, place)
        monkeypatch.chdir(place)
        path, before = place / file, content(place / "home")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path, place)
        for words in COMMANDS[kind]:
            signal.alarm(int(PATIENCE))
            status = main(words)
            signal.alarm(0)
            said = "".join(capfd.readouterr())
            assert status in (0, 1), (file, words)
            assert status == 0 or said
            assert "Traceback" not in said
            assert content(place / "home") == before, (file, words)
        shutil.rmtree(place)
