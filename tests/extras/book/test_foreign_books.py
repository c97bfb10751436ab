"""A book's folder that somebody else wrote: nothing outside of it changes."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
from books import new_book
from own_process import PATIENCE

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.extras.book.chain import signed
from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.extras.book.folder import RunPlaces

READERS = {
    "verify": ["verify", "certificate.json", "--book", "book"],
    "head": ["head", "book", "--out", "out"],
    "certificate": ["certificate", "book", "--out", "out.json"],
}
WRITERS = {
    "update": ["update", "book", "--forget", "1"],
    "update --finish": ["update", "book", "--finish"],
}


@pytest.fixture(autouse=True)
def _no_hang():
    """A pipe that nobody writes to would never end."""
    signal.alarm(int(PATIENCE))
    yield
    signal.alarm(0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of a book, with files of a user beside it."""
    monkeypatch.chdir(tmp_path)
    book = new_book(tmp_path / "book", (1, 2))
    (tmp_path / "certificate.json").write_text(json.dumps(book.certificate()))
    rng = np.random.default_rng(0)
    np.savez("rows.npz", features=rng.normal(size=(9, 5)), labels=np.arange(9) % 3)
    (tmp_path / "home" / "heads").mkdir(parents=True)
    for name in ("results.json", "heads/a", ".bashrc"):
        (tmp_path / "home" / name).write_text("mine")
    return tmp_path


def content(folder):
    """Each path below a folder, with its bytes."""
    paths = [path for path in folder.rglob("*") if path.name != ".lock"]
    return {p: p.read_bytes() if p.is_file() else os.lstat(p).st_mode for p in paths}


def journal(place, files=(), gone=()):
    staged = place / "book" / "staged"
    staged.mkdir()
    for number in range(len(files)):
        (staged / str(number)).write_text("attacker")
    decided = {"files": list(map(str, files)), "gone": list(map(str, gone))}
    (place / "book" / "journal.json").write_text(json.dumps(decided))


def replaced(place, name, make):
    path = place / "book" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    make(path)


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def file_of_others(path):
    path.symlink_to(path.parents[1] / "home" / ".bashrc")


def folder_of_others(path):
    path.symlink_to(path.parents[1] / "home", target_is_directory=True)


FILES = ("journal.json", "book.json", "chain.json", "key", "entries/000001.safetensors")
SPOILT = {
    "an absolute file": lambda p: journal(p, [p / "home" / ".bashrc"]),
    "an absolute folder": lambda p: journal(p, [], [p / "home"]),
    "a file above": lambda p: journal(p, ["../home/.bashrc"]),
    "a folder above": lambda p: journal(p, [], ["../home"]),
    "a file behind a link": lambda p: (
        folder_of_others(p / "book" / "runs2"), journal(p, ["runs2/.bashrc"])
    ),
    "a folder behind a link": lambda p: (
        folder_of_others(p / "book" / "runs2"), journal(p, [], ["runs2/heads"])
    ),
    "what is staged is a link": lambda p: (
        journal(p, ["book.json"]),
        (p / "book" / "staged" / "0").unlink(),
        file_of_others(p / "book" / "staged" / "0"),
    ),
    "no list": lambda p: (p / "book" / "journal.json").write_text('{"files": 3}'),
    "no text": lambda p: (
        (p / "book" / "journal.json").write_text('{"files": [3], "gone": []}')
    ),
    **{
        f"{name} is a {make.__name__}": lambda p, name=name, make=make: (
            replaced(p, name, make)
        )
        for name in FILES
        for make in (pipe, device, file_of_others, folder_of_others)
    },
    **{
        f"entries is a {make.__name__}": lambda p, make=make: (
            replaced(p, "entries", make)
        )
        for make in (pipe, file_of_others, folder_of_others)
    },
}  # fmt: skip


@pytest.mark.parametrize("spoilt", SPOILT)
def test_no_command_changes_anything_outside(place, ggeur, spoilt):
    SPOILT[spoilt](place)
    outside, inside = content(place / "home"), content(place / "book")
    for words in READERS.values():
        assert ggeur(*words, status=1).err.startswith("error: ")
        assert content(place / "book") == inside, "a reader writes nothing"
    for words in WRITERS.values():
        assert ggeur(*words, status=1).err.startswith("error: ")
    assert content(place / "home") == outside
    assert not (place / "out").exists()
    assert not (place / "out.json").exists()


def test_a_change_that_was_interrupted_is_finished_by_one_command(place, ggeur):
    data = (place / "book" / "book.json").read_bytes()
    journal(place, ["runs/x"], ["runs/000001_join"])
    for words in [*READERS.values(), WRITERS["update"]]:
        said = ggeur(*words, status=1).err
        assert "runs/x" in said
        assert "runs/000001_join" in said
        assert "ggeur update" in said
        assert "--finish" in said
    assert main(WRITERS["update --finish"]) == 0
    assert (place / "book" / "runs" / "x").read_text() == "attacker"
    assert not (place / "book" / "runs" / "000001_join").exists()
    assert (place / "book" / "book.json").read_bytes() == data
    assert main(READERS["verify"]) == 0


def test_readers_write_only_what_the_user_named(place):
    before = content(place / "book")
    for words in READERS.values():
        assert main(words) == 0
    assert content(place / "book") == before
    assert (place / "out" / "head.safetensors").exists()
    (place / "book" / ".lock").unlink()  # a copy of a book has none
    assert main(READERS["verify"]) == 0
    assert content(place / "book") == before


def with_about(place, **changed):
    """The book says these things of itself, and signs them."""
    path = place / "book" / "book.json"
    about = {**json.loads(path.read_text()), **changed}
    key = (place / "book" / "key").read_bytes()
    about = signed({k: about[k] for k in about if k != "signature"}, key)
    path.write_text(json.dumps(about))


def test_forgetting_deletes_where_the_mark_is_right(place, ggeur):
    home, own = place / "home", place / "run"
    own.mkdir()
    made = ("head.safetensors", "checkpoint.round0", "log.txt", ".0a1b.tmp")
    for name in (*made, "config.yaml", "mine.txt"):
        (own / name).write_text("made of statistics")
    Federation.load("book").begin_run(RunPlaces.of(own, place / "saved"))
    for name in ("saved", "saved.round0"):
        (place / name).write_text("statistics")
    known = json.loads((place / "book" / "book.json").read_text())["runs"]
    foreign = {"path": str(home), "saved": str(home / ".bashrc"), "link": 2}
    with_about(place, runs=[*known, foreign])
    shutil.copy(own / "book.mark", home)  # of another name
    before = content(home)
    said = ggeur(*WRITERS["update"]).out
    assert f"no mark of this book: '{home}'" in said
    assert content(home) == before
    assert {path.name for path in own.iterdir()} == {"config.yaml", "mine.txt"}
    assert f"left alone: {own / 'mine.txt'}" in said
    assert "config.yaml" not in said
    assert not list(place.glob("saved*"))


@pytest.mark.parametrize(
    "changed",
    [
        {"exponents": None},
        {"class_names": [1, 2]},
        {"encoder": 3},
        {"min_samples": 5.0},
        {"runs": [{"path": "/home", "link": "2"}]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_values_of_other_types_are_refused(place, ggeur, changed):
    with_about(place, **changed)
    assert "the book 'book' cannot be read: " in ggeur(*READERS["verify"], status=1).err


def test_changed_records_are_found(place, ggeur):
    with_about(place, runs=[{"path": "home", "link": 2}])
    assert "absolute" in ggeur(*READERS["verify"], status=1).err
    about = json.loads((place / "book" / "book.json").read_text())
    about.update(runs=[], encoder="another")
    (place / "book" / "book.json").write_text(json.dumps(about))
    assert "signature is wrong" in ggeur(*READERS["verify"], status=1).err
