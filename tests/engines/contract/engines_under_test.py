"""The six engines, each behind the same few methods, and what one of them cannot do.

`begin` starts a run of a config on one machine; a `Going` is this run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flower_nodes import App, Nodes
from folder_world import World
from own_process import until
from processes import Fleet, Worker, free_port
from standalone import outcome

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.reporting import Results

NAME = "a_run"
#: What a run may say of itself that another one of the same numbers does not.
OWN = ("notes", "privacy", "given")


@dataclass
class Outcome:
    """What a run leaves.

    Attributes
    ----------
    ended : dict from who to whether it ended well
        0 is the server. Where all are in one process, there is nobody else.
    folder : Path
    log : str
        What the server has said.
    sites : dict from client to folder
    """

    ended: dict[int, bool]
    folder: Path
    log: str
    sites: dict[int, Path]

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    @property
    def results(self) -> Results:
        return Results.from_json((self.folder / "results.json").read_text())

    @property
    def head(self) -> bytes:
        return (self.folder / "head.safetensors").read_bytes()

    @property
    def numbers(self) -> dict:
        """All but times, and what a server on its own cannot know of its clients."""
        kept = outcome(self.results)
        return {name: value for name, value in kept.items() if name not in OWN}

    def heard(self, number: int) -> dict[int, list[int]]:
        """What each client had heard of the toy question by the end of a round."""
        record = self.results.rounds[number - 1] if number else self.results.round0
        heard = record.exchanges["toy_question"]["heard"]
        return {int(k): said for k, said in heard.items()}

    @property
    def accuracies(self) -> list[dict[str, float]]:
        return [record.accuracy for record in self.results.rounds]

    @property
    def trained(self) -> list[list[int]]:
        return [record.clients for record in self.results.rounds]


class Going:
    """A run that goes on while the test does something to it.

    `log` is what the server has said so far, `runs` whether it goes on, and `end` waits
    for its end.
    """

    def says(self, words: str, times: int = 1) -> None:
        """Wait until the server has said these words so often."""

        def said() -> bool:
            assert self.log().count(words) >= times or self.runs(), (
                f"it ended before {words!r}:\n{self.log()}"
            )
            return self.log().count(words) >= times

        until(said)


class Engine:
    """One of the engines.

    Attributes
    ----------
    apart : bool
        Whether its clients are processes of their own.
    """

    apart = False

    def begin(self, config: Path, settings: Sequence, clients: int) -> Going:
        """Begin a run of so many clients."""
        self.begun = config, settings, clients
        return self._begin(*self.begun)

    def go_on(self, stopped: Going, checkpoint: Path) -> Going:
        """Go on from a checkpoint of a run that was stopped."""
        config, settings, clients = self.begun
        return self._begin(
            config, [*settings, "federate.restore_from", checkpoint], clients
        )

    def close(self) -> None:
        """End what still runs."""


class Embedded(Engine):
    """The embedded engine, in this process."""

    def __init__(self, folder: Path):
        self._folder = folder

    def _begin(self, config: Path, settings: Sequence, clients: int) -> Going:
        words = ["--cfg", str(config), *map(str, settings)]
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        words += ["outdir", str(folder), "expname", NAME]
        return _InThisProcess(words, folder / NAME)


class _InThisProcess(Going):
    def __init__(self, words, folder):
        self._words, self._folder = words, folder

    def end(self) -> Outcome:
        status = main(self._words)
        log = (self._folder / "log.txt").read_text()
        return Outcome({0: not status}, self._folder, log, {})


class Forked(Engine):
    """An engine whose processes a fork server starts."""

    def __init__(self, folder: Path, forks):
        self._folder, self._forks = folder, forks
        self.workers: list[Worker] = []

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            print(worker)  # shown if the test fails


class Standalone(Forked):
    """FederatedScope standalone, in a process of its own."""

    def _begin(self, config: Path, settings: Sequence, clients: int) -> Going:
        words = ["--engine", "federatedscope", "--cfg", str(config)]
        words += [*map(str, settings), "expname", NAME]
        folder = self._folder / f"standalone_{len(self.workers)}"
        self.workers.append(Worker(self._forks, folder, words))
        return _Workers({0: self.workers[-1]}, None)


class Streams(Engine):
    """FederatedScope distributed: a process for the server and for each client."""

    apart = True

    def __init__(self, folder: Path, forks):
        self._folder, self._forks = folder, forks
        self.fleets: list[Fleet] = []

    def _begin(self, config: Path, settings: Sequence, clients: int) -> Going:
        folder = self._folder / f"fleet_{len(self.fleets)}"
        folder.mkdir()
        words = [*map(str, settings), "expname", NAME, "ggeur.deadline.join", "600"]
        words += ["ggeur.deadline.return", "0"]
        fleet = Fleet(self._forks, folder, config, words)
        self.fleets.append(fleet)
        members = {0: fleet.server()}
        members.update({k: fleet.client(k) for k in range(1, clients + 1)})
        return _Workers(members, fleet)

    def close(self) -> None:
        for fleet in self.fleets:
            fleet.end()
            print(fleet)  # shown if the test fails


class _Workers(Going):
    def __init__(self, members: dict[int, Worker], fleet: Fleet | None):
        self._members, self._fleet = members, fleet

    def log(self) -> str:
        return self._members[0].output

    def runs(self) -> bool:
        return self._members[0].status() is None

    def killed(self, who: int) -> None:
        """Wait until one of them has been killed."""
        assert self._members[who].wait() == -9

    def start_again(self, who: int, *settings) -> None:
        name = f"{who}_again"
        again = self._fleet.client(who, name=name) if who else (
            self._fleet.server(*settings, name=name)
        )  # fmt: skip
        self._members[who] = again

    def end(self) -> Outcome:
        status = {who: worker.wait() == 0 for who, worker in self._members.items()}
        folders = {k: one.folder / "exp" / NAME for k, one in self._members.items()}
        folder = folders.pop(0)
        return Outcome(status, folder, self.log(), folders)


class Flower(Engine):
    """Flower's app, in this process: its ServerApp asks its ClientApp."""

    def __init__(self, folder: Path, flower_here):
        self._folder = folder

    def _begin(self, config: Path, settings: Sequence, clients: int) -> Going:
        out = Path(tempfile.mkdtemp(dir=self._folder))
        places = ["outdir", str(out / "exp"), "expname", NAME]
        cfg = load_config(config, [*map(str, settings), *places])
        return _Flowering(App(out / "app", cfg, Path.cwd()), out / "exp", clients)


class _Flowering(Going):
    def __init__(self, app: App, out: Path, clients: int):
        self._app, self._out, self._clients = app, out, range(1, clients + 1)

    def end(self) -> Outcome:
        nodes = Nodes(self._app, {k: {"partition-id": k - 1} for k in self._clients})
        error = self._app.run(nodes)
        sites = {k: self._out / f"{NAME}_sites" / f"client_{k}" for k in self._clients}
        log = (self._out / NAME / "log.txt").read_text(encoding="utf-8")
        return Outcome({0: error is None}, self._out / NAME, log, sites)


class Sides(Forked):
    """`ggeur serve` and `ggeur join`, each in a process of its own, over streams."""

    apart, by_folder = True, False

    def _begin(self, config: Path, settings: Sequence, clients: int) -> Going:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        words = [*map(str, settings)]
        if not self.by_folder:
            here = ["distribute.server_host", "127.0.0.1", "distribute.server_port"]
            # Settings of the case come later, so they count.
            words = [*here, str(free_port()), "ggeur.deadline.return", "0", *words]
        world = World(folder, load_config(config, words), clients)
        for side in world.sides:
            for plugin in config.parent.glob("*.py"):
                shutil.copy(plugin, side.folder)
        return _Sides(self, world)

    def go_on(self, stopped: Going, checkpoint: Path) -> Going:
        """By the command that the server has printed; the sites by their own."""
        found = re.search(r"to go on: cd \S+ && ggeur (.*)", stopped.log())
        return _Sides(self, stopped.world, shlex.split(found[1]))

    def start(self, world: World, who: int, words: Sequence[str] = ()) -> Worker:
        """Start a side's process; `words` are in place of its ordinary command."""
        side = world.sides[who]
        usual = ["join" if who else "serve", "--cfg", str(side.folder / "side.yaml")]
        usual += ["--folder", str(side.shared)] * self.by_folder
        words = list(words) or usual
        folder = side.folder / f"process_{len(self.workers)}"
        self.workers.append(Worker(self._forks, folder, words))
        return self.workers[-1]


class Folder(Sides):
    """The same over a shared folder."""

    by_folder = True


class _Sides(_Workers):
    def __init__(self, engine: Sides, world: World, server: Sequence[str] = ()):
        self._engine, self.world = engine, world
        members = {0: engine.start(world, 0, server)}
        members.update({k: engine.start(world, k) for k in range(1, len(world.sides))})
        super().__init__(members, None)

    def start_again(self, who: int, *settings) -> None:
        """A server goes on from its checkpoint by itself."""
        self._members[who] = self._engine.start(self.world, who)

    def end(self) -> Outcome:
        status = {who: worker.wait() == 0 for who, worker in self._members.items()}
        folders = {}
        for k, side in enumerate(self.world.sides):
            left = [*side.left.rglob("results.json")]
            newest = max(left, key=lambda path: path.stat().st_mtime, default=None)
            folders[k] = side.left if newest is None else newest.parent
        folder = folders.pop(0)
        return Outcome(status, folder, self.log(), folders)


#: By name, with the fixtures that an engine is made of.
ENGINES = {
    "embedded": (Embedded,),
    "standalone": (Standalone, "fork_server"),
    "streams": (Streams, "fork_server"),
    "serve and join": (Sides, "fork_server"),
    "folder": (Folder, "fork_server"),
    "flower": (Flower, "flower_here"),
}
