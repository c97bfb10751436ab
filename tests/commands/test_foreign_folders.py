"""Folders from elsewhere: nothing that they say is imported, fetched or read."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from own_process import PATIENCE, ROOT
from pictures import write_images
from study_on_disk import forked_workers
from written_runs import edited

from federatedscope_ggeur import FederatedClassifier, Predictor, downloads, run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands import COMMANDS as ALL_COMMANDS
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import read_results

pytestmark = pytest.mark.slow

NAME = "parts_of_a_stranger"
#: Writes where it stands when it is imported.
MODULE = """
import os, pathlib
with open(os.environ["IMPORTED_BY"], "a") as file:
    file.write(str(pathlib.Path(__file__).parent))
"""
#: Images that come with scikit-learn, and an encoder without weights.
DIGITS = [
    "data.type", "bundled_digits@ggeur", "ggeur.encoder.name", "pixels",
    "ggeur.encoder.image_size", "8", "ggeur.encoder.num_workers", "0",
    "federate.total_round_num", "2", "verbose", "0",
]  # fmt: skip
NETWORK = [
    "ggeur.encoder.name", "image", "ggeur.network.name", "digits_cnn",
    "ggeur.steps", "[]", "dataloader.drop_last", "True",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The folders of a run of a head, with a checkpoint, and of a network; images."""
    folder = tmp_path_factory.mktemp("runs")
    save = ["federate.save_to", str(folder / "checkpoint")]
    cache = ["ggeur.encoder.cache", str(folder / "cache")]
    for name, more in {"head": save, "network": NETWORK}.items():
        place = ["outdir", str(folder), "expname", name, *cache]
        words = ["--cfg", "ggeur_quickstart.yaml", *DIGITS, *more, *place]
        assert main(words) == 0
    for file in folder.glob("checkpoint*"):
        file.rename(folder / "head" / file.name)
    logging.getLogger("federatedscope_ggeur").handlers.clear()
    write_images(folder / "images", per_class=1)
    return folder


def change(folder: Path, encoder=(), **settings) -> None:
    """Let the results in `folder` say other settings of ggeur and ggeur.encoder."""
    with edited(folder) as content:
        ggeur = content["config"]["ggeur"]
        ggeur.update(settings)
        ggeur["encoder"].update(encoder)


@dataclass
class Foreign:
    """A run's folder that names a module, which lies wherever it might be sought."""

    folder: Path
    network: Path
    images: Path
    here: Path
    marker: Path

    def imported(self) -> str:
        loaded = NAME in sys.modules
        return self.marker.read_text() if self.marker.exists() else "sys" * loaded


@pytest.fixture
def foreign(runs, tmp_path, monkeypatch) -> Foreign:
    here, path = tmp_path / "here", tmp_path / "path"
    folders = [tmp_path / "head", tmp_path / "network"]
    for folder in folders:
        shutil.copytree(runs / folder.name, folder)
        change(folder, {"cache": "embeddings_cache"}, plugins=[NAME])
    for place in (here, path, *folders):
        place.mkdir(exist_ok=True)
        (place / f"{NAME}.py").write_text(MODULE)
    sys.modules.pop(NAME, None)
    monkeypatch.chdir(here)
    monkeypatch.setenv("IMPORTED_BY", str(tmp_path / "imported"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{path}")
    for place in (path, here, folders[0]):
        monkeypatch.syspath_prepend(place)
    return Foreign(*folders, runs / "images", here, tmp_path / "imported")


RESTORED = [
    "--cfg", "ggeur_quickstart", *DIGITS, "federate.restore_from",
    "{folder}/checkpoint", "outdir", "{here}/exp",
]  # fmt: skip
#: The commands that read a folder.
COMMANDS = {
    "compare": ["compare", "{folder}"],
    "report": ["report", "{folder}"],
    "report --paper": ["report", "{folder}", "--paper", "table7"],
    "predict": ["predict", "--run", "{folder}", "{images}"],
    "export": ["export", "{folder}", "--card", "{here}/card.md"],
    "predict by a network": ["predict", "--run", "{network}", "{images}"],
    "restore_from": RESTORED,
    "audit": ["audit", *RESTORED, "--seconds", "0.1"],
}
if "audit" not in ALL_COMMANDS:  # the extra is not there
    del COMMANDS["audit"]


def words_of(command: str, foreign: Foreign) -> list[str]:
    return [word.format(**vars(foreign)) for word in COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_imports_what_a_folder_names(command, foreign, capfd):
    status = main(words_of(command, foreign))
    found = capfd.readouterr()
    assert not foreign.imported()
    assert status == (command == "report --paper") or command == "audit", found.err
    assert ("--paper" in found.err) == (command == "report --paper")
    assert len(found.err.splitlines()) <= 3
    assert not (foreign.here / "head").exists()


def test_nor_does_a_study_that_goes_on(foreign, tmp_path):
    """Its finished run, and one that was cut off, have the stranger's files."""
    (foreign.here / "s.yaml").write_text(
        "base: ggeur_quickstart\nseeds: [0, 1]\n"
        "settings: {federate.total_round_num: 2}\n"
    )
    words = ["study", "s.yaml", "--workers", "1", "--out", "out"]
    with forked_workers():
        assert main(words) == 0
    out = foreign.here / "out"
    for seed in (0, 1):
        change(out / f"seed_{seed}", plugins=[NAME])
        shutil.copy(foreign.folder / f"{NAME}.py", out / f"seed_{seed}")
    (out / "seed_1").rename(out / "seed_1.part")
    (out / "seed_1.part" / "results.json").unlink()
    for name in ("checkpoint", "checkpoint.round0"):
        shutil.copy(foreign.folder / name, out / "seed_1.part")
    with forked_workers():
        assert main(words) == 0
    assert (out / "seed_1" / "results.json").is_file()
    assert not foreign.imported()


class TestInPython:
    def test_settings_in_a_dict_import_nothing(self, foreign):
        for act in (load_config, run):
            with pytest.raises(ConfigError, match=rf"(?s)'{NAME}'.*--plugins {NAME}"):
                act(read_results(foreign.folder).config)
        assert not foreign.imported()

    def test_the_user_s_own_word_does(self, foreign):
        config = read_results(foreign.folder).config
        own = {"ggeur.plugins": [NAME]}
        assert load_config(config, own).ggeur.plugins == [NAME]
        assert foreign.imported()
        assert load_config(config).ggeur.plugins == [NAME]

    @pytest.mark.parametrize(
        "key",
        [{"encoder": {"name": "of_a_stranger"}}, {"closed_form": "of_a_stranger"}],
    )
    def test_a_predictor_that_needs_it_says_so(self, foreign, key):
        change(foreign.folder, **key)
        with pytest.raises(ConfigError, match=f"--plugins {NAME}"):
            Predictor(foreign.folder)
        assert not foreign.imported()


def test_named_on_the_command_line_it_is_loaded(foreign, capsys):
    words = words_of("predict", foreign)
    assert main([*words, "--plugins", NAME]) == 0, capsys.readouterr().err
    assert foreign.marker.read_text() == str(foreign.here)


RESNET = {"name": "timm", "model": "resnet18", "image_size": -1.0}


@pytest.fixture
def mine(foreign) -> Foreign:
    """The same without plugins."""
    for folder in (foreign.folder, foreign.network):
        change(folder, plugins=[])
    return foreign


class TestPlacesOutside:
    """Data, weights and caches that a results file names are the user's to allow."""

    @pytest.mark.parametrize(
        "encoder",
        [
            {"name": "open_clip", "pretrained": "/somebody/else.pt"},
            {"name": "open_clip", "pretrained": "weights_here"},
            {"name": "timm", "model": "resnet18", "pretrained": "../else.pth"},
        ],
    )
    def test_weights(self, mine, encoder, ggeur):
        (mine.here / "weights_here").touch()
        change(mine.folder, {**encoder, "image_size": -1.0})
        error = ggeur(*words_of("predict", mine), status=1).err
        place = encoder.get("pretrained") or encoder["model"]
        assert f"'{place}'" in error
        assert "--trust" in error

    def test_weights_that_the_user_names_need_no_other_word(self, mine, ggeur):
        change(mine.folder, {**RESNET, "pretrained": "/else.pt"})
        words = words_of("predict", mine)
        error = ggeur(*words, "--pretrained", mine.here / "own.pt", status=1).err
        assert "own.pt" in error
        assert "--trust" not in error


def test_nothing_is_downloaded_without_a_word(mine, monkeypatch, capsys):
    pytest.importorskip("timm")
    reached = []

    def reach(address):
        reached.append(address)
        raise OSError("there is no network in a test")

    monkeypatch.setattr(downloads, "find", lambda remote: None)
    monkeypatch.setattr(downloads, "check_network", reach)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    change(mine.folder, RESNET)
    main(words_of("predict", mine))
    found = capsys.readouterr()
    assert "--trust" in found.out + found.err
    assert reached == []
    with pytest.raises(ConfigError, match="no network in a test"):
        Predictor(mine.folder, trust=True)
    assert reached


# Folders of others whose files are links, devices or pipes: nothing outside changes,
# and nothing hangs. Books: tests/extras/book/test_foreign_books.py.


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
COMMANDS_ON_FILES = {
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
            COMMANDS_ON_FILES["study"][-1],
            ["certificates", "plan.yaml"],
        ):
            with forked_workers():
                assert main(command) == 0
    (place / "study" / "seed_1").rename(place / "study" / "seed_1.part")
    return place


#: What is put in the place of a file.
OTHERS = {
    "pipe": lambda path, place: os.mkfifo(path),
    "device": lambda path, place: path.symlink_to("/dev/zero"),
    "file of others": lambda path, place: path.symlink_to(place / "home" / "mine"),
    "folder of others": lambda path, place: path.symlink_to(place / "home" / "kept"),
    "nowhere": lambda path, place: path.symlink_to(place / "home" / "new"),
}


def content(folder):
    paths = sorted(folder.rglob("*"))
    return {p: p.read_bytes() if p.is_file() else None for p in paths}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kind", COMMANDS_ON_FILES)
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
        for words in COMMANDS_ON_FILES[kind]:
            signal.alarm(int(PATIENCE))
            with forked_workers():
                status = main(words)
            signal.alarm(0)
            said = "".join(capfd.readouterr())
            assert status in (0, 1), (file, words)
            assert status == 0 or said
            assert "Traceback" not in said
            assert content(place / "home") == before, (file, words)
        shutil.rmtree(place)
