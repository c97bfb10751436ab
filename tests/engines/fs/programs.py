"""FederatedScope's (FS's) own programs, main.py, in processes of their own.

A checkout in which the plugin is enabled is imported once; each run is then a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from own_process import OF_FS, in_turn


@dataclass(frozen=True)
class Call:
    """A command line, and the packages that are not there."""

    program: str
    words: tuple[str, ...]
    hidden: tuple[str, ...] = ()


def run_programs(
    checkout: Path, folder: Path, calls: Sequence[Call], seconds: float
) -> list[tuple[int, str]]:
    """Exit status and output of each call, made in `folder` one after the other."""
    package = checkout / "federatedscope"
    return in_turn(
        [(str(package / call.program), *call.words) for call in calls],
        folder,
        [call.hidden for call in calls],
        f"{OF_FS}; import runpy; runpy.run_path({str(package / 'main.py')!r})",
        str(checkout),
        seconds,
    )
