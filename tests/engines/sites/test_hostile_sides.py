"""A site or a server with a pinned key that signs and seals what it likes.

docs/privacy.md says what a server that lies may learn: not more after a site's restart.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from folder_world import SERVER, Side, World
from test_folder_runs import LDA

from federatedscope_ggeur.engines.sites import sealed
from federatedscope_ggeur.engines.sites.content import packed, unpacked
from federatedscope_ggeur.engines.sites.hub import _MOST_ANSWERS
from federatedscope_ggeur.engines.sites.roles import transport_settings
from federatedscope_ggeur.engines.sites.sealed import Channel, Context, sha256
from federatedscope_ggeur.engines.sites.store import Store
from federatedscope_ggeur.engines.sites.transport import Envelope
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast

#: The server goes on without one site.
TWO = (*LDA, "ggeur.quorum", 2)


class Liar:
    """Writes any file in the name of `sender`, after those that are there."""

    def __init__(self, here: World, sender: Side, receiver: Side, cfg):
        self.own, self.sender, self.receiver = sender.own, sender.name, receiver.name
        site = receiver if sender is here.server else sender
        (folder,) = sender.keys.glob("run_*")
        self.store, self.settings = Store(folder), transport_settings(cfg)
        ways = ["to", "from"] if sender is here.server else ["from", "to"]
        self.place, self.other = (here.server.shared / w / site.name for w in ways)
        self.place.mkdir(parents=True, exist_ok=True)
        hello = (self.other / "0001.msg").read_bytes()
        header = json.loads(hello[68 : 68 + int.from_bytes(hello[64:68], "big")])
        self.channel = Channel(self.store.secret, bytes.fromhex(header["key"]))

    def context(self, place, number: int, answers: int = 0) -> Context:
        ways = self.sender, self.receiver
        way = ways if place is self.place else ways[::-1]
        last = place / f"{number - 1:04d}.msg"
        before = sha256(last.read_bytes()) if number > 1 else ""
        return Context(SERVER, self.store.run, *way, number, before, answers)

    @staticmethod
    def count(place) -> int:
        return len(list(place.glob("*.msg")))

    def say(self, *said: Envelope, content: bytes = b"", answers=None) -> None:
        answers = self.count(self.other) if answers is None else answers
        context = self.context(self.place, self.count(self.place) + 1, answers)
        data = content or packed(said, self.settings)
        self.write(self.channel.seal(context, data, self.own))

    def sign(self, header: bytes) -> None:
        rest = len(header).to_bytes(4, "big") + header + bytes(4112)
        self.write(self.own.sign(sealed._to_sign(rest)) + rest)

    def write(self, data: bytes) -> None:
        (self.place / f"{self.count(self.place) + 1:04d}.msg").write_bytes(data)

    def said(self, place) -> list[Envelope]:
        """What the last file in a place says."""
        number = self.count(place)
        data = (place / f"{number:04d}.msg").read_bytes()
        content, _ = self.channel.open(data, self.context(place, number), None, "it")
        return unpacked(content, self.settings, "it")


@pytest.mark.parametrize(
    "header",
    [
        lambda h: b'["version"]',
        lambda h: b"[" * 10**5,
        lambda h: json.dumps({**h, "client": float("inf")}).encode(),
        lambda h: json.dumps({**h, "key": "00" * 32}).encode(),
    ],
)
def test_a_greeting_that_is_none_is_refused(header, world, config, caplog):
    here = world(*TWO)
    here.turn(here.server)
    here.turn(here.sites[2])
    place = here.server.shared / "from" / "s3"
    liar = Liar(here, here.sites[2], here.server, config())
    for path in place.iterdir():
        path.unlink()
    about = {"version": 1, **asdict(liar.context(place, 1)), "client": 3}
    liar.sign(header({**about, "key": "11" * 32}))
    assert here.turn(here.server) == "the sites join; awaited: s1, s2, s3"
    assert caplog.text.count("refused") == 1


def test_a_file_without_a_salt_is_refused(world, config, caplog):
    here = world(*TWO)
    here.turns(1, here.server)
    liar = Liar(here, here.sites[2], here.server, config())
    liar.sign(
        json.dumps({"version": 1, **asdict(liar.context(liar.place, 3))}).encode()
    )
    assert here.turn(here.server) == "statistics, round 0; awaited: s1, s2, s3"
    assert "from/s3/0003.msg refused" in caplog.text


def test_a_site_that_writes_on_and_on_stops_nobody(world, config, caplog):
    here = world(*TWO)
    here.turns(1, here.server)
    liar = Liar(here, here.sites[0], here.server, config())
    (join,) = liar.said(liar.place)
    for answers in [1, 2, 2, 2, *range(2, 60)]:
        liar.say(join, answers=answers)
    (store,) = here.server.keys.glob("run_*")
    for _ in range(3):
        here.turn(here.server)
    asked, taken = (len(list((store / w / "s1").iterdir())) for w in ("asked", "taken"))
    assert taken <= 1 + _MOST_ANSWERS * asked
    assert "it answers file 2, and that is not due" in caplog.text
    here.turn(here.sites[1])
    assert here.turn(here.server) == "statistics, round 0; awaited: s1, s3"


def test_a_file_of_too_many_messages_is_refused(world, config, caplog):
    here = world(*TWO)
    here.turns(1, here.server)
    liar = Liar(here, here.sites[0], here.server, config())
    liar.say(*liar.said(liar.place) * 65)
    here.turn(here.server)
    assert "too many messages" in caplog.text


def evaluated(here: World, cfg) -> tuple[Liar, Envelope]:
    """The server's hand after the first evaluation, and the question."""
    for _ in range(9):
        here.turn(here.server)
        liar = Liar(here, here.server, here.sites[0], cfg) if _ else None
        if liar is not None and liar.said(liar.place)[-1].kind == "evaluate":
            asked = liar.said(liar.place)[-1]
            here.turn(here.sites[0])
            return liar, asked
        for site in here.sites:
            here.turn(site)
    raise AssertionError("nothing was scored")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "changes", "words"),
    [
        (LDA, lambda b: {"params": b.params + 1}, "only one"),
        ((), lambda b: {"absent": (1, 2, 3)}, "other classes"),
    ],
)
def test_a_restart_opens_no_other_question(settings, changes, words, world, config):
    """Each turn is a process of its own."""
    from federatedscope_ggeur.engines.sites.site import FolderSite, Meeting, site_config

    here = world(*settings)
    liar, asked = evaluated(here, config())
    path, shared, keys, own = here.sites[0].place
    met = Meeting(shared, keys, own)
    site = FolderSite(site_config(path, met.settings), met)
    schema = site._leaves._client.scored_schema
    first = Broadcast.from_bytes(asked.parts[0], schema)
    other = replace(first, **changes(first)).to_bytes()
    for state in (asked.state, 9):  # a server that lies may say any round
        liar.say(replace(asked, state=state, parts=(other,)))
        with pytest.raises(GGEURError, match=words):
            here.turn(here.sites[0])
        assert liar.said(liar.other)[0].kind == "failed"
        here.turn(here.sites[0], again=True)


@pytest.mark.slow
def test_a_file_asks_one_question(world, config):
    here = world()
    liar, asked = evaluated(here, config())
    liar.say(asked, asked)
    with pytest.raises(GGEURError, match="more than one question"):
        here.turn(here.sites[0])


@pytest.mark.slow
def test_lines_that_were_taken_away_end_no_run(world):
    here = world(*LDA)
    here.turns(1, here.server)
    known = here.server.keys / "known.txt"
    lines = known.read_text()
    known.write_text("".join(lines.splitlines(True)[:-1]))
    with pytest.raises(ConfigError, match=r"known\.txt"):
        here.turn(here.server)
    known.write_text(lines)
    here.run()


@pytest.mark.slow
def test_a_folder_in_another_place_is_the_same_run(world):
    """A stick may be mounted elsewhere; and what it lost is in the store."""
    here = world(*LDA)
    here.turns(1, here.server)
    (here.server.shared / "to" / "s1" / "0001.msg").unlink()
    assert "answered" in here.turn(here.sites[0])
    moved = here.server.shared.with_name("elsewhere")
    here.server.shared.rename(moved)
    for side in here.sides:
        side.shared = moved
    here.run()


def test_a_file_of_somebody_else_is_no_lost_store(world):
    here = world(*LDA)
    here.turns()
    (here.server.shared / "from" / "s1" / "0003.msg").write_bytes(bytes(9999))
    with pytest.raises(ConfigError, match="somebody else wrote it"):
        here.turn(here.sites[0])


def test_who_is_put_out_before_the_start_is_not_awaited(world):
    here = world(*LDA)
    here.turn(here.server)
    here.turn(here.sites[1])
    here.server.pin("s1 out from 1")
    assert here.turn(here.server) == "the sites join; awaited: s3"
    here.server.pin("s2 out from 3")
    here.server.pin("s3 out from 1")
    with pytest.raises(GGEURError, match="all clients were put out"):
        here.turn(here.server)


@pytest.mark.parametrize(
    ("settings", "words"), [((), "statistics, round 0"), (TWO[-2:], "quorum needs 2")]
)
def test_the_one_site_that_is_left_begins_unless_the_quorum_is_more(
    settings, words, world
):
    here = world(*LDA, *settings)
    for side in (here.server, here.sites[0], here.server):
        here.turn(side)
    here.server.pin("s2 out from 1")
    here.server.pin("s3 out from 1")
    for _ in range(2):  # a restart replays it
        try:
            line = here.turn(here.server)
        except GGEURError as error:
            line = str(error)
        assert words in line
