"""A run by folder that begins a book: kills end nothing, and forgetting finds it."""

import pytest
from folder_world import Deaths

from federatedscope_ggeur import files
from federatedscope_ggeur.errors import ConfigError

book_folder = pytest.importorskip("federatedscope_ggeur.extras.book.folder")
Federation = pytest.importorskip(
    "federatedscope_ggeur.extras.book.federation"
).Federation

pytestmark = pytest.mark.slow

BOOK = (
    *("ggeur.closed_form", "lda", "ggeur.privacy.min_samples", 2),
    *("ggeur.init", "random", "federate.total_round_num", 1),
)


@pytest.fixture
def book(tmp_path):
    """Where the book will be; sides change the folder that names are relative to."""
    return tmp_path / "book"


def stores(side):
    return [path for path in side.keys.glob("run_*") if path.is_dir()]


def test_a_book_by_folder_is_that_of_the_embedded_engine(
    world, embedded, book, monkeypatch
):
    """Also if the server is killed anywhere, while it writes the book too."""
    folder = embedded(*BOOK, "ggeur.book", str(book.with_name("embedded_book")))
    here = world(*BOOK, "ggeur.book", str(book))
    deaths = Deaths(files.write_atomically, 0.3)
    deaths.strike(monkeypatch, book_folder)
    here.run_dying()
    assert deaths.count > 15
    assert here.server.head == (folder / "head.safetensors").read_bytes()
    ours, theirs = (
        Federation.load(book),
        Federation.load(book.with_name("embedded_book")),
    )
    assert ours.total() == theirs.total()
    assert ours.clients == theirs.clients == [1, 2, 3]


def test_forgetting_takes_the_uploads_out_of_the_store(world, book):
    here = world(*BOOK, "ggeur.book", str(book))
    here.run()
    (store,) = stores(here.server)
    assert list(store.glob("taken/*/*.msg"))
    Federation.load(book).leave(3)
    assert "the run is over" in here.turn(here.server), "leaving changes no run"
    assert not Federation.load(book).forget(2).said[2:], "nothing was left alone"
    assert not stores(here.server)
    assert not (here.server.left / "head.safetensors").exists()
    assert not (here.server.left / "results.json").exists()
    with pytest.raises(ConfigError, match="there is no store of it"):
        here.turn(here.server)


def test_forgetting_in_the_middle_of_the_run(world, book):
    here = world(*BOOK, "ggeur.book", str(book), "federate.total_round_num", 5)
    while not book.is_dir():
        here.turns()
    Federation.load(book).forget(2)
    assert not stores(here.server)
    with pytest.raises(ConfigError, match="there is no store of it"):
        here.turn(here.server)


def test_a_folder_with_other_files_becomes_no_book(world, book):
    book.mkdir()
    (book / "mine.txt").write_text("mine")
    here = world(*BOOK, "ggeur.book", str(book))
    with pytest.raises(ConfigError, match="is not empty"):
        here.turn(here.server)  # before any site has come
    assert [path.name for path in book.iterdir()] == ["mine.txt"]
    elsewhere = Federation.create(
        book.with_name("other"), ["a", "b"], 2, {"ggeur": {"closed_form": "lda"}}
    )
    (book / "mine.txt").unlink()
    book.rmdir()
    for side in (here.server, here.sites[0], here.server):
        here.turn(side)
    elsewhere.path.rename(book)
    with pytest.raises(ConfigError, match="is not empty"):
        here.turn(here.server)  # before all sites have joined
    assert Federation.load(book).links == elsewhere.links
