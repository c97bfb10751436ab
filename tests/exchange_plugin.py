"""An exchange of a user's own: each client says how many classes it holds."""

from pathlib import Path

NAME = "classes_of_a_user"
MODULE = '''\
"""Asks each client how many classes it holds."""

from federatedscope_ggeur import register_exchange
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges import (
    ClientSide,
    Exchange,
    RequestKind,
    refusal,
)


class Answer(wire.Payload, kind="classes_held"):
    client: int = wire.client()
    classes: int = wire.integer(least=1)


class Counter(ClientSide):
    def answer(self):
        held = int((self.client.counts > 0).sum())
        return Answer(self.client.number, held)


def validate(exchange, request, answer):
    most = exchange.server.schema.num_classes
    if answer.classes > most:
        raise refusal(answer.client, "classes", f"there are {most} classes")


ASK = RequestKind(
    name="classes_held",
    message="classes_held_request",
    deadline="round0",
    parts=(),
    respond=lambda side: side.answer(),
    answer_message="classes_held",
    answer=Answer,
    validate=validate,
)


@register_exchange("classes_held")
class ClassesHeld(Exchange):
    KINDS = (ASK,)
    CLIENT = Counter
    REVEALS = "how many classes each client holds"

    def __init__(self, course):
        super().__init__(course)
        self.found = {}

    def begin(self):
        participants = self.server.participants
        yield from self.catch_up(self.course.membership.here(participants))

    def catch_up(self, returned):
        missing = [k for k in returned if k not in self.found]
        answers = yield from self.course.ask(ASK, 0, dict.fromkeys(missing, ()))
        self.found.update({a.client: a.classes for a in answers})

    def record(self):
        return {"classes": {str(k): self.found[k] for k in sorted(self.found)}}

    def round(self, number):
        yield from ()
        return self.record()

    def progress(self):
        return self.record()

    def resume_progress(self, values):
        self.found = {int(k): n for k, n in values["classes"].items()}
'''
#: What it leaves out, secure sums refuse it.
SILENT = MODULE.replace('REVEALS = "how many classes each client holds"', "pass")
NAMED = ("ggeur.plugins", f"['{NAME}']")


def write_plugin(folder: Path, quickstart: Path, module: str = MODULE) -> Path:
    """The quickstart with the plugin beside it, which it does not name."""
    (folder / f"{NAME}.py").write_text(module)
    path = folder / "asking.yaml"
    path.write_text(quickstart.read_text())
    return path
