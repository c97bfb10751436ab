"""A federation by folder in this process: sides that run once, one after the other."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import yaml

from federatedscope_ggeur import files
from federatedscope_ggeur.cfg_ggeur.load import default_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import plain_config
from federatedscope_ggeur.engines.sites.keys import (
    PinnedKeys,
    make_identity,
    read_identity,
)
from federatedscope_ggeur.engines.sites.server import lead
from federatedscope_ggeur.engines.sites.site import take_part
from federatedscope_ggeur.federation.course import client_handler
from federatedscope_ggeur.reporting import read_results
from federatedscope_ggeur.reporting import run as reporting_run
from federatedscope_ggeur.settings import flatten

SERVER, NAME = "hearts", "a_run"
OWN_HEADS = (
    *("ggeur.closed_form", "lda", "ggeur.personal.head", "means"),
    *("ggeur.privacy.min_samples", 1),
)
LEAVE_ONE_OUT = (
    *("ggeur.closed_form", "auto", "data.splitter", "iid", "data.splitter_args", "[]"),
    *("ggeur.privacy.min_samples", 2),
)


class Killed(BaseException):
    """A process is killed here."""


class Side:
    """The server or a site, with a folder of its own."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self.keys, self.shared = folder / "keys", folder / "shared"
        self.shared.mkdir(parents=True)
        self.own = make_identity(self.keys, name)
        self.over = False

    def pin(self, line: str) -> None:
        with (self.keys / "known.txt").open("a") as file:
            file.write(f"{line}\n")
        self.compare()

    def compare(self) -> None:
        """Compare the words of all keys, as two people do."""
        known = PinnedKeys(self.keys, read_identity(self.keys, ""), self.name == SERVER)
        for words in list(known.uncompared):
            known.note_compared(words)

    @property
    def place(self) -> tuple:
        own = read_identity(self.keys, "")
        return str(self.folder / "side.yaml"), self.shared, self.keys, own

    @property
    def left(self) -> Path:
        return self.folder / "runs" / NAME

    @property
    def head(self) -> bytes:
        return (self.left / "head.safetensors").read_bytes()


class World:
    """Sides that know each other.

    Parameters
    ----------
    folder : path
    cfg : the settings of all sides
    sites : int
    apart : bool
        Whether each side has a shared folder of its own, and `carry` copies files.
    """

    def __init__(self, folder: Path, cfg, sites: int, apart: bool = False):
        self.server = Side(folder / "server", SERVER)
        self.sites = [Side(folder / f"s{k}", f"s{k}") for k in range(1, sites + 1)]
        self.sides = [self.server, *self.sites]
        for k, side in enumerate(self.sides):
            self._write(side, cfg, k)
        for site in self.sites:
            self.server.pin(site.own.line)
            site.pin(self.server.own.line)
            if not apart:
                site.shared.rmdir()
                site.shared = self.server.shared

    @staticmethod
    def _write(side: Side, cfg, number: int) -> None:
        # What is not the default: reading YAML takes most of a side's time.
        usual = dict(flatten(plain_config(default_config())))
        said: dict = {}
        for key, value in flatten(plain_config(cfg)):
            if value != usual.get(key, "none") and key != "federate.mode":
                *path, name = key.split(".")
                place = said
                for part in path:
                    place = place.setdefault(part, {})
                place[name] = value
        said.update(outdir="runs", expname=NAME)
        said.setdefault("distribute", {}).update({"data_idx": number} if number else {})
        (side.folder / "side.yaml").write_text(yaml.safe_dump(said))

    def turn(self, side: Side, **options) -> str:
        """Let one side take what is there."""
        if side is self.server:
            line = lead(*side.place, once=True)
        else:
            line = take_part(*side.place, once=True, **options)
        side.over = "the run is over" in line
        return line

    def turns(self, times: int = 1, *then: Side) -> None:
        """Let all sides take turns so often, and then some once more."""
        for side in [*self.sides * times, *then]:
            self.turn(side)

    def commands(self) -> list[list[str]]:
        """The command lines of all sides, the server's first."""
        lines = []
        for side in self.sides:
            path, shared, keys, _ = side.place
            words = "serve" if side is self.server else "join", "--cfg", path
            lines.append([*words, "--folder", str(shared), "--keys", str(keys)])
        return lines

    def go_on_without_the_last(self) -> None:
        """Nobody runs the last site any more."""
        self.sites.pop()
        self.sides.pop()

    def run(self, turns: int = 200) -> None:
        """Let all sides take turns, until the run is over at each."""
        for _ in range(turns):
            for side in self.sides:
                if not side.over:
                    self.turn(side)
            if all(side.over for side in self.sides):
                return
        raise AssertionError("the run did not end")

    def run_dying(self) -> None:
        """Let all sides take turns, each of which may be killed."""
        while not all(side.over for side in self.sides):
            for side in self.sides:
                with suppress(Killed):
                    if not side.over:
                        self.turn(side)

    def carry(self, drawn: random.Random) -> None:
        """Copy files between the folders as a poor carrier does.

        Any file may come late, in any order, twice, or at first in part only.
        """
        for site in self.sites:
            ways = ("to", self.server, site), ("from", site, self.server)
            for way, sender, receiver in ways:
                files = sorted((sender.shared / way / site.name).glob("*.msg"))
                drawn.shuffle(files)
                for file in files:
                    target = receiver.shared / way / site.name / file.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    lot = drawn.random()
                    if lot < 0.3:
                        continue
                    if lot < 0.4 and not target.exists():
                        data = file.read_bytes()
                        target.write_bytes(data[: drawn.randrange(len(data))])
                    else:
                        shutil.copyfile(file, target)

    def run_apart(self, seed: int) -> None:
        """Let sides take turns in any order, with a poor carrier between them."""
        drawn = random.Random(seed)
        for _ in range(2000):
            self.carry(drawn)
            side = drawn.choice([side for side in self.sides if not side.over])
            self.turn(side)
            if all(side.over for side in self.sides):
                return
        raise AssertionError("the run did not end")


def check_as_embedded(world, wanted) -> None:
    """The heads and scores are those in the folder `wanted`, to the bit."""
    ours, theirs = (read_results(folder) for folder in (world.server.left, wanted))
    assert ours.status == theirs.status == "finished"
    assert [r.accuracy for r in ours.rounds] == [r.accuracy for r in theirs.rounds]
    assert ours.final.accuracy == theirs.final.accuracy
    for side in world.sides:
        head, wanted_head = side.left / "head.safetensors", wanted / "head.safetensors"
        assert head.exists() == wanted_head.exists()
        assert not head.exists() or head.read_bytes() == wanted_head.read_bytes()
    for site in world.sites:
        for own in (site.left / "heads").glob("*"):
            assert own.read_bytes() == (wanted / "heads" / own.name).read_bytes()
    made = {path.name for path in (wanted / "heads").glob("*")}
    left = {p.name for site in world.sites for p in (site.left / "heads").glob("*")}
    assert made == left


class Deaths:
    """Kills the process at a share of all writes: before the file is there, or after.

    Each write is met once in each of the two ways.
    """

    def __init__(self, write, share: float, seed: int = 0):
        self._write, self._share = write, share
        self._drawn, self._met = random.Random(seed), set()
        self.count = 0

    def strike(self, monkeypatch, *modules) -> None:
        """Take the place of the writes of a run by folder, and of `modules`."""
        for module in (files, client_handler, reporting_run, *modules):
            monkeypatch.setattr(module, "write_atomically", self)

    def __call__(self, path, data, mode=0o666) -> None:
        self._maybe(path, "before")
        self._write(path, data, mode)
        self._maybe(path, "after")

    def _maybe(self, path: Path, when: str) -> None:
        if (str(path), when) in self._met:
            return
        self._met.add((str(path), when))
        if self._drawn.random() < self._share:
            self.count += 1
            raise Killed
