"""What a run gives: all of it, for runs that must give the same to the bit."""

from __future__ import annotations

from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import Results, numbers


def outcome(cfg, workers=1, order=sorted):
    """All that a run gives but times, and all that it has sent."""
    going, sent = Run(cfg), []
    going.engine.workers, going.engine.order = workers, order

    def listen(request, replies):
        sent.append((request.kind.name, dict(request.parts), replies))

    going.engine.listen = listen
    results = going.follow(lambda record: None)
    given = numbers(results)
    del given["config"]
    return given, going.history.head_bytes(), dict(going.history.own_bytes()), sent


def finished(cfg, data: FederatedData | None = None) -> tuple[Run, Results]:
    """A run that is over, and its results."""
    going = Run(cfg, data)
    return going, going.follow(lambda record: None)


def backwards(given):
    return sorted(given, reverse=True)


def restored(made, path, last):
    """The outcome of a run that is stopped after the round `last`, and goes on.

    ``made(*settings)`` is its config with further settings.
    """
    for record in Run(made("federate.save_to", path)).engine.run():
        if getattr(record, "round", 0) == last:
            break
    return outcome(made("federate.restore_from", path))


def overheard(going):
    """Results of a run, and of all its messages kind, client, what goes down and up."""
    found = []

    def note(request, replies):
        for k, up in replies.items():
            found.append((request.kind.name, k, request.parts[k], up))

    going.engine.listen = note
    return going.follow(lambda record: None), found
