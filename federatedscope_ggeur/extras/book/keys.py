"""The settings that both sides of a book share, and those that cannot go with it."""

from __future__ import annotations

from importlib.util import find_spec

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import Objection, Objections

from .manifest import BookKeys


def agreed(run: Demands) -> dict[str, object]:
    """The book's settings that server and clients must share."""
    return {"book_steps": run.of(BookKeys).book_steps}


def objections(run: Demands) -> Objections:
    """The settings that cannot go with a book."""
    own = run.of(BookKeys)
    if not own.book:
        if own.book_steps:
            yield "book_steps", "needs ggeur.book"
        return
    if find_spec("cryptography") is None:
        install = "pip install 'federatedscope-ggeur[privacy]'"
        yield "book", f"needs the package cryptography: {install}"
    forms = [name for name, form in CLOSED_FORMS.present().items() if form.from_sums]
    why = "which stores counts, class sums and one second moment of each client"
    yield Objection("book", {"closed_form": forms}, why)
    why = "since only training again removes a client from a trained head"
    yield Objection("book", {"init": ["random"]}, why)
    why = "since the server stores each client's exact statistics"
    yield Objection("book", {"secure_sums": ["none"], "dp.epsilon": [0]}, why)
    plain = {
        "statistics": ["needed", "class", "summed"],
        "float32_means": [False],
        "personal.head": ["none"],
    }
    yield Objection("book", plain, "since its head depends on the totals only")
