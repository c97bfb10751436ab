"""A client's ledger of noisy releases: how much of each row's privacy is spent.

The ledger is written before an upload leaves. An entry stays even if the session fails.
The spendings of a row add up as mu^2, which is exact. Epsilons do not add up.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from federatedscope_ggeur.errors import ConfigError, GGEURError, setting
from federatedscope_ggeur.federation.kept_file import KeptFile

_FORM = 1
_SUFFIX = ".ledger"
#: A sum of squares may exceed the limit by this share, since floats round.
_SLACK = 1e-9


@dataclass(frozen=True)
class LedgerEntry:
    """One release in a ledger.

    Attributes
    ----------
    session : str
    at : str
        The time of the charge, in UTC.
    mu : float
    rows : int
        The number of rows in the release.
    preparation : str
        How the rows were prepared before the release; see `Spendings.spent`.
    stages : sequence of str
        The stages of the session whose vectors may have been sent.
    """

    session: str
    at: str
    mu: float
    rows: int
    preparation: str
    stages: Sequence[str] = ()


@dataclass(frozen=True)
class Spendings:
    """All releases in a ledger, and the sums for each row.

    Attributes
    ----------
    entries : tuple of LedgerEntry
    spent : mapping from preparation to mapping from digest to float
        The sum of mu^2 over the releases of each row. Digests of rows that were
        prepared in different ways cannot be compared, so they may belong to the same
        row.
    """

    entries: tuple[LedgerEntry, ...] = ()
    spent: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of_row(self, digest: str, preparation: str) -> float:
        """The largest sum of mu^2 that a row may have spent so far."""
        others = (
            max(rows.values(), default=0.0)
            for name, rows in self.spent.items()
            if name != preparation
        )
        return self.spent.get(preparation, {}).get(digest, 0.0) + sum(others)

    @property
    def most(self) -> float:
        """An upper limit on the mu that any row has spent."""
        return math.sqrt(sum(max(r.values(), default=0.0) for r in self.spent.values()))

    def charged(self, entry: LedgerEntry, rows: Collection[str]) -> Spendings:
        """The spendings after one more release of the rows with these digests."""
        own = dict(self.spent.get(entry.preparation, {}))
        for digest in rows:
            own[digest] = own.get(digest, 0.0) + entry.mu**2
        spent = {**self.spent, entry.preparation: own}
        return Spendings((*self.entries, entry), spent)


class Ledger:
    """The ledger of one client, in a file, or in memory if `folder` is "".

    Parameters
    ----------
    folder : str
    number : int

    Attributes
    ----------
    salt : bytes
        The client's secret; digests of rows depend on it.

    Raises
    ------
    ConfigError
        A file of the ledger cannot be read or written, or the two files do not match.
    """

    def __init__(self, folder: str, number: int):
        self._number = number
        self._held = Spendings()
        self._file = KeptFile(folder, _name(number), "dp.ledger", number)
        with self._file.locked():
            try:
                self.salt = self._file.salt()
            except (OSError, ValueError) as error:
                raise _unusable(self._file.path, error) from error
            self._held = self._read()

    def charge(
        self,
        session: str,
        stage: str,
        rows: Collection[bytes],
        preparation: str,
        mu: float,
        most: float,
    ) -> None:
        """Record a stage of a session, before anything of it is sent.

        The first stage charges the release to the rows, given by their digests.

        Raises
        ------
        GGEURError
            A row would spend more than the mu `most`, or the stage was recorded
            before. Nothing is charged then.
        ConfigError
            The ledger cannot be written.
        """
        digests = {row.hex() for row in rows}
        with self._file.locked():
            held = self._read()
            before = [entry for entry in held.entries if entry.session == session]
            if any(stage in entry.stages for entry in before):
                raise GGEURError(
                    f"client {self._number}: the client has sent stage '{stage}' of "
                    "this session and has lost it. New noise would be a second "
                    "release, so nothing is sent. Begin the run again"
                )
            if before:
                (entry,) = before
                begun = replace(entry, stages=[*entry.stages, stage])
                entries = [begun if e is entry else e for e in held.entries]
                self._held = replace(held, entries=tuple(entries))
                self._write(self._held)
                return
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            entry = LedgerEntry(session, now, mu, len(rows), preparation, [stage])
            worst = max((held.of_row(d, preparation) for d in digests), default=0.0)
            if worst + mu**2 > most**2 * (1 + _SLACK):
                raise GGEURError(
                    f"client {self._number}: another release would exceed "
                    f"{setting('dp.epsilon_total')} for some rows, so nothing is sent"
                )
            after = held.charged(entry, digests)
            self._write(after)
            self._held = after

    def _read(self) -> Spendings:
        path = self._file.path
        try:
            data = self._file.read()
        except OSError as error:
            raise _unusable(path, error) from error
        if data is None:
            return self._held
        spendings, mark = _parsed(data, path)
        if mark != self._mark:
            raise _unusable(path, "the salt file beside it belongs to another ledger")
        return spendings

    def _write(self, held: Spendings) -> None:
        if not self._file.is_kept:
            return
        content = {
            "form": _FORM,
            "client": self._number,
            "salt": self._mark,
            "releases": [asdict(entry) for entry in held.entries],
            "spent": held.spent,
        }
        self._file.write(json.dumps(content, indent=1).encode())

    @property
    def _mark(self) -> str:
        return hashlib.blake2b(key=self.salt, person=b"ledger").hexdigest()


def ledger_path(folder: str, number: int) -> Path:
    """The path of a client's ledger in `folder`."""
    return Path(folder) / _name(number)


def _name(number: int) -> str:
    return f"client_{number:04d}{_SUFFIX}"


def read_ledger(path: Path) -> tuple[Spendings, str]:
    """Read a ledger file. Returns its spendings and the hash of its salt.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from error
    return _parsed(data, path)


def _parsed(data: bytes, path: Path) -> tuple[Spendings, str]:
    try:
        content: dict[str, Any] = json.loads(data)
        if content["form"] != _FORM:
            raise ValueError("another version of this program wrote it")
        entries = tuple(LedgerEntry(**one) for one in content["releases"])
        spent = {
            str(name): {str(d): float(v) for d, v in rows.items()}
            for name, rows in content["spent"].items()
        }
        return Spendings(entries, spent), str(content["salt"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, why: object) -> ConfigError:
    if path.suffix != _SUFFIX:  # a person named another file
        return ConfigError(f"'{path}' is no ledger: {why}")
    return ConfigError(
        f"{setting('dp.ledger')}: the ledger '{path}' cannot be used: {why}. Do not "
        "delete it: it records how much of these rows' privacy is spent. Name "
        "another folder only for rows that were never released"
    )
