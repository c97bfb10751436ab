"""A plugin that asks and tells in every way, and in which a test makes things go wrong.

Each round the server tells every client a number, then asks it with a part that all
share, a part of its own and an empty one. The answer says what has arrived. A file
"<what> <who> <round>" in the folder `ggeur.toy_question.place` makes client `who`, or
the server (0), do something else in that round; see `ACTIONS`. So no test needs to
know how an engine runs its processes.
"""

import os
import signal
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from federatedscope_ggeur import register_exchange
from federatedscope_ggeur.federation import exchanges, wire
from federatedscope_ggeur.settings import Section, key, rule_of


class ToySettings(Section):
    PREFIX = "toy_question."

    place: str = key(
        "", "Folder of what is to go wrong.", rule_of("must be a path", Path)
    )


@dataclass(frozen=True)
class Note:
    """A number for clients. It writes and reads itself, which a plugin's may."""

    number: int

    def to_bytes(self):
        return wire.pack("toy_note", {"number": self.number}, {})

    @classmethod
    def from_bytes(cls, data, schema):
        message = wire.unpack(data, "toy_note", "the server")
        message.only(())
        return cls(message.integer("number"))


class Echo(wire.Payload, kind="toy_echo"):
    """What has arrived at a client."""

    client: int = wire.client()
    told: int = wire.integer()
    shared: int = wire.integer()
    own: int = wire.integer()
    empty: int = wire.integer()
    process: int = wire.integer()


def _hold(file: Path) -> None:
    """Wait until the test takes the file away."""
    file.with_name(f"{file.name} begun").touch()
    while file.exists():
        time.sleep(0.02)


def _die(file: Path) -> None:
    file.unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(file: Path) -> None:
    """Be stopped as by a person."""
    file.unlink()
    signal.raise_signal(signal.SIGTERM)


ACTIONS = {"hold": _hold, "die": _die, "stop": _stop}


def _act(place: str, who: int, number: int) -> None:
    for name, act in ACTIONS.items():
        file = Path(place, f"{name} {who} {number}")
        if file.exists():
            act(file)


class Answering(exchanges.ClientSide):
    """A client, which remembers what it was told."""

    def __init__(self, client, rows):
        super().__init__(client, rows)
        self.told = 0
        self._place = client.settings.demands.of(ToySettings).place

    def hear(self, note):
        self.told = note.number

    def answer(self, shared, own, empty):
        _act(self._place, self.client.number, shared.number)
        lies = Path(self._place, f"lie {self.client.number} {shared.number}").exists()
        return Echo(
            self.client.number,
            self.told,
            shared.number,
            own.number + lies,
            int(empty is None),
            os.getpid(),
        )

    def answer_late(self, note):
        _hold(Path(self._place, f"late {self.client.number} {note.number}"))
        return Echo(self.client.number, 0, note.number, 0, 0, os.getpid())


def validate(exchange, request, answer):
    if answer.own not in (0, exchange.own(answer.client)):
        raise exchanges.refusal(
            answer.client, "own", f"this is not its number: {answer.own}"
        )


TELL = exchanges.RequestKind(
    name="toy_tell",
    message="toy_told",
    deadline="round0",
    parts=(Note,),
    respond=lambda side, note: side.hear(note),
    shared_parts=True,
)
ASK = exchanges.RequestKind(
    name="toy_ask",
    message="toy_asked",
    deadline="round0",
    parts=(Note, Note, Note),
    respond=lambda side, *notes: side.answer(*notes),
    answer_message="toy_echo",
    answer=Echo,
    validate=validate,
    optional_parts=True,
)
#: Asked of those alone that are to be late: nobody else is under its short deadline.
LATE = exchanges.RequestKind(
    name="toy_late",
    message="toy_late_asked",
    deadline="evaluate",
    parts=(Note,),
    respond=lambda side, note: side.answer_late(note),
    answer_message="toy_late_echo",
    answer=Echo,
)


@register_exchange("toy_question")
class ToyQuestion(exchanges.Exchange):
    KINDS = (TELL, ASK, LATE)
    CLIENT = Answering
    REVEALS = "nothing of its rows"
    SETTINGS = ToySettings

    def __init__(self, course):
        super().__init__(course)
        self.heard, self.caught_up = {}, []
        self._place = self.server.settings.demands.of(ToySettings).place

    def own(self, client):
        return 100 + client

    def begin(self):
        yield from self._ask(0, self.server.participants)

    def catch_up(self, returned):
        self.caught_up += returned
        yield from self._ask(0, returned)

    def round(self, number):
        _act(self._place, 0, number)
        yield from self._ask(number, self.server.participants)
        here = self._here(self.server.participants)
        late = [k for k in here if Path(self._place, f"late {k} {number}").exists()]
        note = Note(number).to_bytes()
        yield from self.course.ask(LATE, number, dict.fromkeys(late, (note,)))
        return self.record()

    def _ask(self, number, clients):
        told, shared = Note(number + 7).to_bytes(), Note(number).to_bytes()
        everyone = dict.fromkeys(self._here(clients), (told,))
        yield from self.course.tell(TELL, number, everyone)
        asked = {
            k: (shared, Note(self.own(k)).to_bytes(), b"") for k in self._here(clients)
        }
        answers = yield from self.course.ask(ASK, number, asked)
        self.heard.update({str(echo.client): list(astuple(echo)) for echo in answers})

    def _here(self, clients):
        return self.course.membership.here(clients)

    def record(self):
        heard = {k: self.heard[k] for k in sorted(self.heard)}
        return {"heard": heard, "caught_up": list(self.caught_up)}

    def progress(self):
        return self.record()

    def resume_progress(self, values):
        self.heard, self.caught_up = dict(values["heard"]), list(values["caught_up"])
