"""Settings of a federation's book, and the settings that cannot go with it."""

from __future__ import annotations

from importlib.util import find_spec

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.geometry import Grid
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import Key, Objection, Objections, text


def _steps(value: object) -> str:
    """Says what is wrong with a value of ``ggeur.book_steps``; "" if nothing is."""
    if not isinstance(value, (list, tuple)):
        return "must be a list of powers of two, one for each dimension, or one for all"
    try:
        Grid.of_steps([float(step) for step in value], max(len(value), 1))
    except (StatisticsError, TypeError, ValueError) as error:
        return str(error)
    return ""


KEYS = (
    Key(
        "book",
        "",
        "Server: a new folder for the federation's book, where the server stores the "
        "clients' statistics. `ggeur update` lets clients join or leave, or forgets "
        "them, and makes the head anew.",
        text,
    ),
    Key(
        "book_steps",
        [],
        "With ggeur.book: clients round statistics to multiples of this step, a "
        "public power of two. One step for all dimensions, or one for each; []: "
        "2^-32, for entries up to 4096.",
        _steps,
    ),
)


def agreed(run: Demands) -> dict[str, object]:
    """The book's settings that server and clients must share."""
    return {"book_steps": run["book_steps"]}


def objections(run: Demands) -> Objections:
    """The settings that cannot go with a book."""
    if not run.book:
        if run["book_steps"]:
            yield "book_steps", "needs ggeur.book"
        return
    if find_spec("cryptography") is None:
        install = "pip install 'federatedscope-ggeur[privacy]'"
        yield "book", f"needs the package cryptography: {install}"
    forms = [name for name, form in CLOSED_FORMS.items() if form.from_sums]
    why = "which stores counts, class sums and one second moment of each client"
    yield Objection("book", {"closed_form": forms}, why)
    why = "since only training again removes a client from a trained head"
    yield Objection("book", {"init": ["random"]}, why)
    why = "since the server stores each client's exact statistics"
    yield Objection("book", {"secure_sums": ["none"], "dp.epsilon": [0]}, why)
    plain = {
        "statistics": ["class", "summed"],
        "float32_means": [False],
        "personal.head": ["none"],
        "text.prior": [0],
        "text.ensemble": [0],
    }
    yield Objection("book", plain, "since its head depends on the totals only")
