"""Settings of a federation's book, and what cannot go with it."""

from __future__ import annotations

from importlib.util import find_spec

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.geometry import Grid
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import Key, Objection, Objections, text


def _steps(value: object) -> str:
    """The rule for steps; returns what is wrong with the value."""
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
        "Server: a new folder for the federation's book, which keeps the clients' "
        "statistics. With `ggeur update`, clients join, leave and are forgotten "
        "there, and the head follows.",
        text,
    ),
    Key(
        "book_steps",
        [],
        "With ggeur.book: the step, a public power of two, that statistics are "
        "rounded to. One for all dimensions, or one for each; []: 2^-32, for entries "
        "up to 4096.",
        _steps,
    ),
)


def agreed(run: Demands) -> dict[str, object]:
    """What all sides must share for a book, beside the shared keys."""
    return {"book_steps": run["book_steps"]}


def objections(run: Demands) -> Objections:
    """What cannot go with a book."""
    if not run.book:
        if run["book_steps"]:
            yield "book_steps", "is for a run with ggeur.book"
        return
    if find_spec("cryptography") is None:
        install = "pip install 'federatedscope-ggeur[privacy]'"
        yield "book", f"needs the package cryptography: {install}"
    forms = [name for name, form in CLOSED_FORMS.items() if form.from_sums]
    why = "which holds counts, class sums and one second moment of each client"
    yield Objection("book", {"closed_form": forms}, why)
    why = "since a trained head is forgotten by training again only"
    yield Objection("book", {"init": ["random"]}, why)
    why = "since the server keeps what each client sends, exactly"
    yield Objection("book", {"secure_sums": ["none"], "dp.epsilon": [0]}, why)
    plain = {
        "statistics": ["class", "summed"],
        "float32_means": [False],
        "personal.head": ["none"],
        "text.prior": [0],
        "text.ensemble": [0],
    }
    yield Objection("book", plain, "whose head is a function of its totals alone")
