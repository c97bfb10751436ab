"""Which rooms of `federation` a run enters: one client's statistics, and one round.

    python benchmarks/trace.py

The quickstart runs for two rounds on the embedded engine. A call from a file of one
room into a file of another enters that room. What all rooms share (`wire`, settings,
...) is listed with its files.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import federatedscope_ggeur
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.federation.course.asking import Asking
from federatedscope_ggeur.federation.course.client_handler import ClientHandler
from federatedscope_ggeur.federation.exchanges import ORDER
from federatedscope_ggeur.federation.merge import Merge

FEDERATION = Path(federatedscope_ggeur.__file__).parent / "federation"
CONFIG = Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
#: Rooms that everything comes back to.
SHARED_ROOMS = ("client", "server", "merge", "course")


class Trace:
    """The files of `federation` that are called, in order.

    Attributes
    ----------
    files : list of str
        Relative to `federation`; never the same one twice in a row.
    """

    def __init__(self) -> None:
        self.files: list[str] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame, event: str, arg) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and FEDERATION in path.parents:
            file = path.relative_to(FEDERATION).as_posix()
            if self.files[-1:] != [file]:
                self.files.append(file)

    def rooms(self) -> list[str]:
        """The exchanges and the shared rooms in the order in which they are entered."""
        entered: list[str] = []
        for file in self.files:
            room = room_of(file)
            if room and entered[-1:] != [room]:
                entered.append(room)
        return entered

    def exchanges(self) -> list[str]:
        """The exchanges alone, in the order in which they are entered."""
        entered: list[str] = []
        for room in self.rooms():
            if room not in SHARED_ROOMS and entered[-1:] != [room]:
                entered.append(room)
        return entered


def room_of(file: str) -> str:
    """The exchange or the shared room that a file belongs to; "" for what all share."""
    first, *rest = Path(file).with_suffix("").parts
    if first == "exchanges" and rest[0] in ORDER:
        return rest[0]
    return first if first in SHARED_ROOMS else ""


@contextmanager
def following(owner: type, name: str, trace: Trace, wanted: Callable[..., bool]):
    """Have `trace` listen to a method's calls whose arguments are `wanted`."""
    whole = getattr(owner, name)

    def traced(self, *args):
        if not wanted(self, *args):
            return whole(self, *args)
        with trace.listening():
            return whole(self, *args)

    setattr(owner, name, traced)
    try:
        yield
    finally:
        setattr(owner, name, whole)


def trace_statistics(run: Run) -> Trace:
    """What client 1's statistics go through: asked for, answered, decoded, used."""
    trace = Trace()
    answered = following(
        ClientHandler,
        "answer",
        trace,
        lambda handler, kind, parts: (
            (handler.client.number, kind.name) == (1, "statistics")
        ),
    )
    decoded = following(
        Asking,
        "decode",
        trace,
        lambda asking, request, client, parts: (
            (client, request.kind.name) == (1, "statistics")
        ),
    )
    used = following(Merge, "add", trace, lambda merge, upload: upload.client == 1)
    with answered, decoded, used:
        next(run.engine.run())
    return trace


def trace_round(run: Run) -> Trace:
    """What the second round of training goes through, on both sides."""
    trace, records = Trace(), run.engine.run()
    next(records)  # round 0
    next(records)
    with trace.listening():
        next(records)
    return trace


def shown(title: str, trace: Trace) -> str:
    files = list(dict.fromkeys(trace.files))
    return "\n".join(
        [
            f"{title}: {len(files)} files of federation",
            f"  rooms entered: {' > '.join(trace.rooms())}",
            f"  exchanges: {' > '.join(trace.exchanges())}",
            *(f"  {file}" for file in files),
        ]
    )


def quickstart(outdir: str) -> Run:
    return Run(load_config(CONFIG, ["federate.total_round_num", "2", "outdir", outdir]))


def main() -> None:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as outdir:
        print(shown("one client's statistics", trace_statistics(quickstart(outdir))))
        print(shown("a later round", trace_round(quickstart(outdir))))


if __name__ == "__main__":
    main()
