"""``ggeur privacy-ledger``: prints how much privacy of rows clients have spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.commands import add_options, command_parser
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import say
from federatedscope_ggeur.settings import is_number

from .ledger import Spendings, read_ledger
from .noisy_release import epsilon_of

_OPTIONS = """
folder: the folder of ggeur.privacy.dp.ledger, or one client's file
--delta DELTA: the delta for which epsilon is printed (default: 1e-5)
"""


def privacy_ledger(arguments: Sequence[str]) -> int:
    """Print each release in clients' ledgers, and the total of the worst row."""
    parser = command_parser(
        "privacy-ledger", "mu^2 adds up over releases of a row, but epsilons do not."
    )
    add_options(parser, _OPTIONS, delta={"type": float, "default": 1e-5})
    options = parser.parse_args(arguments)
    if not (is_number(options.delta) and 0 < options.delta < 1):
        parser.error(f"--delta: must lie between 0 and 1, got {options.delta}")
    place = Path(options.folder)
    files = sorted(place.glob("client_*.ledger")) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise ConfigError(f"there is no ledger in '{options.folder}'")
    for file in files:
        for line in _lines(file, read_ledger(file)[0], options.delta):
            say(line)
    return 0


def _lines(file: Path, held: Spendings, delta: float) -> list[str]:
    number = len(held.entries)
    lines = [f"{file.name}: {number} release{'' if number == 1 else 's'}"]
    lines += [
        f"  {entry.at}  mu {entry.mu:.4f} (epsilon {epsilon_of(entry.mu, delta):.3g}), "
        f"{entry.rows} rows, {entry.preparation}, session {entry.session[:8]}"
        for entry in held.entries
    ]
    worst = held.most
    total = f"mu {worst:.4f}, epsilon {epsilon_of(worst, delta):.3g} at delta {delta:g}"
    return [*lines, f"  no row has spent more than {total}"]
