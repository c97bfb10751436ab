"""What the core knows of a federation's book."""

from federatedscope_ggeur.extras import Manifest, commands_in
from federatedscope_ggeur.settings import Section, key


def _steps(value: object) -> str:
    """Says what is wrong with a value of ``ggeur.book_steps``; "" if nothing is."""
    if not isinstance(value, (list, tuple)):
        return "must be a list of powers of two, one for each dimension, or one for all"
    from federatedscope_ggeur.errors import StatisticsError

    from .grid import Grid  # which imports torch

    try:
        Grid.of_steps([float(step) for step in value], max(len(value), 1))
    except (StatisticsError, TypeError, ValueError) as error:
        return str(error)
    return ""


class BookKeys(Section):
    """The settings of a book."""

    book: str = key(
        "",
        "Server: a new folder for the federation's book, where the server stores the "
        "clients' statistics. `ggeur update` lets clients join or leave, or forgets "
        "them, and makes the head anew.",
    )
    book_steps: tuple[str, ...] = key(
        (),
        "With ggeur.book: clients round statistics to multiples of this step, a "
        "public power of two. One step for all dimensions, or one for each; []: "
        "2^-32, for entries up to 4096.",
        _steps,
    )


_COMMANDS = """
update BOOK --join|--leave|--forget K|...: let clients join, leave or be forgotten;
  classes join, old rows go
head BOOK --clients 1,4: write the head of some clients
certificate BOOK --out FILE: sign who is in a book, and its head
verify FILE [--book BOOK]: check a certificate of a book
"""

MANIFEST = Manifest(
    commands_in(f"{__package__}.command", _COMMANDS, "over time"),
    BookKeys.declared(),
    parts=(f"{__package__}.exchange",),
    formerly={"book.federation": f"{__package__}.federation"},
)
