"""Whoever carries the files can only delay a run: all else is refused by name.

docs/privacy.md says what a carrier sees.
"""

import io
import os
import shutil
import socket

import pytest
from folder_world import World, check_as_embedded
from test_folder_runs import LDA

from federatedscope_ggeur.engines.sites import sealed
from federatedscope_ggeur.engines.sites.keys import Identity, PinnedKeys, make_identity
from federatedscope_ggeur.engines.sites.sealed import padded_size
from federatedscope_ggeur.engines.sites.site import FolderSite
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import read_results

#: One upload, which the server scores.
ONE = (*LDA, "federate.make_global_eval", True)


def flip(at: int):
    def act(path, good, world):
        data = bytearray(good)
        data[at] ^= 1
        path.write_bytes(data)

    return act


def link_to(place):
    def act(path, good, world):
        outside = world.server.folder / "outside"
        outside.write_bytes(good)
        path.symlink_to(outside if place == "file" else place)

    return act


def huge(path, good, world):
    with path.open("wb") as file:
        file.truncate(10 * 2**30)


def linked_folder(path, good, world):
    elsewhere = world.server.folder / "elsewhere"
    path.parent.rename(elsewhere)
    (elsewhere / path.name).write_bytes(good)
    path.parent.symlink_to(elsewhere)


def bound_socket(path, good, world):
    os.chdir(path.parent)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def of_place(name: str):
    """Another file of this run in this place."""
    return lambda path, good, world: shutil.copy(world.server.shared / name, path)


#: What a carrier does with the file from/s1/0003.msg, and words of the refusal.
ACTS = {
    "a signature changed": (flip(3), "field 'signature'"),
    "the header changed": (flip(100), "field 'signature'"),
    "the content changed": (flip(-1), "field 'signature'"),
    "a part alone": (lambda p, good, w: p.write_bytes(good[:500]), "'signature'"),
    "nothing": (lambda p, good, w: p.write_bytes(b""), "field 'signature'"),
    "an invented file": (lambda p, good, w: p.write_bytes(bytes(9999)), "signature"),
    "an earlier file again": (of_place("from/s1/0002.msg"), "field 'number'"),
    "another site's file": (of_place("from/s2/0003.msg"), "field 'signature'"),
    "the server's own file": (of_place("to/s1/0002.msg"), "field 'signature'"),
    "a link": (link_to("file"), "link"),
    "a link to a device": (link_to("/dev/zero"), "link"),
    "a link to nothing": (link_to("nowhere"), "link"),
    "a linked folder": (linked_folder, "link"),
    "a pipe": (lambda p, good, w: os.mkfifo(p), "not a file"),
    "a socket": (bound_socket, "field 'file'"),
    "a folder": (lambda p, good, w: p.mkdir(), "field 'file'"),
    "10 GB": (huge, "at most"),
}


def undo(path) -> None:
    if path.parent.is_symlink():
        elsewhere = path.parent.readlink()
        path.parent.unlink()
        elsewhere.rename(path.parent)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="links, pipes and sockets are tried")
def test_whatever_is_not_the_next_file_of_its_sender_is_refused(
    world, embedded, caplog, monkeypatch
):
    here = world(*ONE)
    here.turns(2)
    path = here.server.shared / "from" / "s1" / "0003.msg"
    good = path.read_bytes()
    listed = os.scandir

    def scandir(place="."):
        assert str(here.server.shared) not in str(place), "a folder of others is listed"
        return listed(place)

    monkeypatch.setattr(os, "scandir", scandir)
    for what, (act, words) in ACTS.items():
        undo(path)
        act(path, good, here)
        caplog.clear()
        line = here.turn(here.server)
        assert line.endswith("awaited: s1"), what
        refused = [
            r.getMessage() for r in caplog.records if "refused" in r.getMessage()
        ]
        assert len(refused) == 1, what
        assert "from/s1/0003.msg" in refused[0], what
        assert words in refused[0], what
    undo(path)
    assert here.turn(here.server).endswith("awaited: s1")  # withheld
    path.write_bytes(good)
    monkeypatch.undo()
    here.run()
    check_as_embedded(here, embedded(*ONE))


def test_nothing_is_read_that_the_pinned_key_has_not_signed(world, monkeypatch):
    here = world(*ONE)
    here.turn(here.server)
    path = here.server.shared / "to" / "s1" / "0001.msg"
    flip(-1)(path, path.read_bytes(), here)
    assert here.turn(here.sites[0]) == "nothing has come yet; awaited: hearts"
    monkeypatch.setattr(sealed, "json", None)
    with pytest.raises(sealed.MessageError, match="has not signed"):
        sealed.read_greeting(
            path.read_bytes(), sealed.Context("hearts", "", "hearts", "s1", 1),
            here.server.own.key, "it",
        )  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="links are tried")
def test_nothing_is_written_through_a_link(world, tmp_path):
    here, outside = world(*ONE), tmp_path / "outside"
    outside.mkdir()
    (here.server.shared / "to").mkdir()
    (here.server.shared / "to" / "s2").symlink_to(outside)
    with pytest.raises(ConfigError, match="to/s2' is a link"):
        here.turn(here.server)
    assert not list(outside.iterdir())


def test_nothing_is_overwritten(world):
    here = world(*ONE)
    place = here.server.shared / "to" / "s1"
    place.mkdir(parents=True)
    (place / "0001.msg").write_bytes(b"of somebody")
    with pytest.raises(ConfigError, match=r"'to/s1/0001.msg' is there"):
        here.turn(here.server)
    assert (place / "0001.msg").read_bytes() == b"of somebody"


def test_a_site_that_signs_rubbish_is_left_out(world, monkeypatch, caplog):
    here = world(*ONE, "ggeur.quorum", 2)
    here.turns(1, here.server)
    say = FolderSite._say

    def rubbish(self, envelopes):
        if envelopes[0].kind == "join_in":
            return say(self, envelopes)
        return self._mail.say(b"\0\0\0\4junk")

    with monkeypatch.context() as patch:
        patch.setattr(FolderSite, "_say", rubbish)
        here.turn(here.sites[2])
    here.go_on_without_the_last()
    here.run()
    assert read_results(here.server.left).round0.clients == [1, 2]
    assert "client 3 is gone: message from site s3 refused" in caplog.text
    assert (here.server.shared / "to" / "s3" / "0003.msg").exists()  # it is told


def test_lengths_are_padded(world):
    """By itself, a thin factor's length tells its rows."""
    here = world(*ONE)
    here.turns(2)
    for number in ("0002", "0003"):
        sizes = {
            (here.server.shared / "from" / site.name / f"{number}.msg").stat().st_size
            for site in here.sites
        }
        assert max(sizes) - min(sizes) < 10  # of the header's digits
    assert [padded_size(n) for n in (0, 4088, 4089, 10**6)] == [4096, 4096, 8192, 2**20]


def test_the_same_content_under_a_number_gives_the_same_bytes(world):
    here = world(*ONE)
    one, other = (sealed.Channel(bytes([k]) * 32, b"\7" * 32) for k in (1, 2))
    context = sealed.Context("hearts", "a" * 32, "s1", "hearts", 2)
    own = here.sites[0].own
    files = [
        channel.seal(context, content, own)
        for channel in (one, one, other)
        for content in (b"this", b"that")
    ]
    assert files[0] == files[2]
    assert len(set(files)) == 4


@pytest.mark.parametrize("name", ["..", "a/b", "", ".x", "a" * 64, "a b"])
def test_names_that_no_side_may_have(name, tmp_path):
    with pytest.raises(ConfigError, match="name of a side"):
        make_identity(tmp_path, name)


@pytest.mark.parametrize(
    "line", ["../x " + "0" * 64, "x 12", "x", "x out from", "x out from 0", "s1 out"]
)
def test_wrong_lines_of_known_keys_are_named(line, tmp_path):
    (tmp_path / "known.txt").write_text(f"# note\ns1 {'0' * 64}\n{line}\n")
    with pytest.raises(ConfigError, match="line 3"):
        PinnedKeys(tmp_path, Identity("x", bytes(32)), serves=True)


def test_a_line_holds_from_its_number_on(tmp_path):
    one, other = "0" * 64, "1" * 64
    lines = f"s1 {one}\ns2 {one}\ns1 {other} from 3\ns1 out from 5\n"
    (tmp_path / "known.txt").write_text(lines)
    known = PinnedKeys(tmp_path, Identity("x", bytes(32)), serves=True)
    assert known.key("s1", 2) is None
    for words in list(known.uncompared):
        known.note_compared(words)
    assert known.names == ["s1", "s2"]
    keys = [known.key("s1", number) for number in (2, 3, 4, 5, 99)]
    assert keys == [bytes(32), b"\x11" * 32, b"\x11" * 32, None, None]


def test_both_sides_show_the_same_words(world: World):
    here = world(*ONE)
    site, server = here.sites[0], here.server
    (of_server,) = PinnedKeys(site.keys, site.own, serves=False).words
    of_site = PinnedKeys(server.keys, server.own, serves=True).words[0]
    words = of_server.removeprefix("hearts: ")
    assert of_site == f"s1: {words}"
    assert len(words.replace(" ", "")) * 4 == 128


def test_nothing_is_exchanged_before_the_words_are_compared(world: World):
    """A line that somebody changed on its way is found by that."""
    here = world(*ONE)
    (here.sites[0].keys / "compared.txt").unlink()
    done = here.server.keys / "compared.txt"
    lines = done.read_text().splitlines()
    done.write_text("\n".join(lines[1:]))
    assert here.turn(here.server) == "the sites join; awaited: s1, s2, s3"
    names = {path.name for path in (here.server.shared / "to").iterdir()}
    assert names == {"s2", "s3"}
    with pytest.raises(ConfigError, match="--yes"):
        here.turn(here.sites[0])
    done.write_text("\n".join(lines))
    here.turn(here.server)
    assert (here.server.shared / "to" / "s1").is_dir()


def test_a_new_key_ends_the_old_one_before_anybody_has_compared_it(tmp_path):
    server = make_identity(tmp_path / "server", "hearts")
    old, new = (make_identity(tmp_path / name, "berlin") for name in ("a", "b"))
    lines = tmp_path / "server" / "known.txt"
    lines.write_text(f"{old.line}\n")
    known = PinnedKeys(tmp_path / "server", server, serves=True)
    known.note_compared(known.uncompared[0])
    lines.write_text(f"{old.line}\n{new.line} from 5\n")
    known = PinnedKeys(tmp_path / "server", server, serves=True)
    assert [known.key("berlin", number) for number in (4, 5)] == [old.key, None]
    assert not known.is_out("berlin", 5)
    known.note_compared(known.uncompared[0])
    assert [known.key("berlin", number) for number in (4, 5)] == [old.key, new.key]


def test_the_end_of_the_input_is_no_answer_that_the_words_are_the_same(
    world: World, monkeypatch, ggeur
):
    here = world(*ONE)
    (here.server.keys / "compared.txt").unlink()
    path, shared, keys, _ = map(str, here.server.place)
    terminal = io.StringIO()  # Ctrl-D at once
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    options = ["--cfg", path, "--folder", shared, "--keys", keys, "--once"]
    said = ggeur("serve", *options).out
    assert said.count("nothing is exchanged with that side") == 3
    assert len(PinnedKeys(here.server.keys, here.server.own, True).uncompared) == 3
